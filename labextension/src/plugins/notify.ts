/** Questions before the user's actions and notifications about them, and when JupyterLab has drawn a notification. */
import { Dialog, Notification, showDialog } from '@jupyterlab/apputils';

import { asProblem, Problem } from '../models/problem';
import { DrawnNotifications } from '../models/drawnnotifications';
import { ITrans } from '../models/trans';

/** How long the notification of a success is shown. */
const SUCCESS_MILLISECONDS = 4000;

export interface IContent {
  readonly message: string;
  readonly type: Notification.TypeOptions;
  /** Milliseconds until it closes; false keeps it open. */
  readonly autoClose: number | false;
  readonly actions?: Notification.IAction[];
}

/** JupyterLab's notifications, changed only once they are drawn. */
export const labNotifications = new DrawnNotifications<IContent>({
  emit: ({ message, type, ...options }) => Notification.emit(message, type, options),
  update: (id, content) => Notification.update({ id, ...content }),
  dismiss: id => Notification.dismiss(id),
  has: id => Notification.manager.has(id),
  drawn
});

/** The open notifications of actions that have failed, by the action. */
const failed = new Map<string, string>();

/** Ask before something that cannot be taken back; `action` names it. Enter is not a yes. */
export async function confirm(trans: ITrans, title: string, body: string, action: string): Promise<boolean> {
  const buttons = [Dialog.cancelButton({ label: trans.__('Cancel') }), Dialog.warnButton({ label: action })];
  return (await showDialog({ title, body, buttons, defaultButton: 0 })).button.accept;
}

/** What to say of an action, first while it is in progress. */
export interface IActionWords<T> {
  readonly during: string;
  /** What to say of a success. */
  readonly after: string | ((result: T) => string);
  readonly failed: IFailureWords;
}

/** What to say of an action that has failed, before and after the reason. */
export interface IFailureWords {
  /** What failed, of which notebook or job. */
  readonly what: string;
  /** What is still there; empty where that is not known. */
  readonly safe?: string;
  /** Names the action: its error is closed by a later success of the same action. Left out: `what`. */
  readonly action?: string;
  /** What else to offer. */
  readonly offers?: (problem: Problem) => Notification.IAction[];
}

/**
 * Show a notification while `work` is in progress, then its result. Never rejects.
 *
 * @returns The result of `work`; null if it failed.
 */
export async function withNotification<T>(
  trans: ITrans,
  work: Promise<T>,
  { during, after, failed: words }: IActionWords<T>
): Promise<T | null> {
  const id = labNotifications.emit({ message: during, type: 'in-progress', autoClose: false });
  const action = words.action ?? words.what;
  try {
    const result = await work;
    succeeded(action);
    const message = typeof after === 'string' ? after : after(result);
    labNotifications.update(id, { message, type: 'success', autoClose: SUCCESS_MILLISECONDS });
    return result;
  } catch (error) {
    succeeded(action);
    failed.set(action, id);
    labNotifications.update(id, failure(trans, error, words));
    return null;
  }
}

/** Show that an action failed, until the user closes it or the action succeeds. */
export function notifyFailure(trans: ITrans, error: unknown, words: IFailureWords): void {
  const action = words.action ?? words.what;
  succeeded(action);
  failed.set(action, labNotifications.emit(failure(trans, error, words)));
}

/** Close the error of an action, which no longer holds. */
export function succeeded(action: string): void {
  const id = failed.get(action);
  if (id !== undefined) {
    failed.delete(action);
    labNotifications.dismiss(id);
  }
}

/** JupyterLab cuts a notification after so many characters, and shows the rest nowhere: often, what to do next. */
const SHOWN_CHARACTERS = 140;

/** Return what failed, what is still there, and what to do next; open until the user or a success closes it. */
function failure(trans: ITrans, error: unknown, { what, safe = '', offers }: IFailureWords): IContent {
  const problem = asProblem(error, trans);
  // A server without our hint is Jupyter's own handler, or a proxy on the way: its words say nothing to a user.
  const unknown = problem.status >= 500 && !problem.hint;
  const reason = unknown
    ? trans.__('The Jupyter server failed (%1). Its log says more; try again.', problem.message)
    : `${problem.message} ${problem.hint}`.trim();
  const text = [what, reason, safe].filter(Boolean).join(' ');
  const details = {
    label: trans.__('Details'),
    callback: (event: MouseEvent) => {
      // It stays open.
      event.preventDefault();
      void showDialog({ title: trans.__('Details'), body: text, buttons: [Dialog.okButton()] });
    }
  };
  const actions = [...(offers?.(problem) ?? []), ...(text.length > SHOWN_CHARACTERS ? [details] : [])];
  // Not 0: JupyterLab would change it in the list of notifications only.
  return { message: text, type: 'error', autoClose: false, actions };
}

/** How long to wait for a notification that is perhaps never drawn: the user may have switched them off. */
const LONGEST_MILLISECONDS = 10_000;

/** React's effects, which make a notification accept changes, run shortly after its element is in the page. */
const EFFECTS_MILLISECONDS = 200;

/**
 * Resolve when changes of the notification take effect. JupyterLab loads the library that draws notifications with the
 * first one, which takes a second or more over a slow connection; until then it drops changes.
 */
function drawn(id: string): Promise<void> {
  return new Promise(done => {
    const observer = new MutationObserver(look);
    const giveUp = setTimeout(finish, LONGEST_MILLISECONDS);
    function finish(): void {
      observer.disconnect();
      clearTimeout(giveUp);
      done();
    }
    function look(): void {
      if (document.getElementById(id)?.classList.contains('Toastify__toast')) {
        observer.disconnect();
        setTimeout(finish, EFFECTS_MILLISECONDS);
      }
    }
    observer.observe(document.body, { childList: true, subtree: true });
    look();
  });
}
