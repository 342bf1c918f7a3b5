/** Questions before the user's actions and notifications about them, and when JupyterLab has drawn a notification. */
import { Dialog, Notification, showDialog } from '@jupyterlab/apputils';

import { asProblem } from '../models/api';
import { ITrans } from '../models/trans';

/** How long the notification of a success is shown. */
const SUCCESS_MILLISECONDS = 4000;

/** The open notifications of actions that have failed, by the action. */
const failed = new Map<string, string>();

/** Ask before something that cannot be taken back; `action` names it. Enter is not a yes. */
export async function confirm(trans: ITrans, title: string, body: string, action: string): Promise<boolean> {
  const buttons = [Dialog.cancelButton({ label: trans.__('Cancel') }), Dialog.warnButton({ label: action })];
  return (await showDialog({ title, body, buttons, defaultButton: 0 })).button.accept;
}

/**
 * Show a notification while `work` is in progress, then its result. Never rejects.
 *
 * @param after What to say of a success.
 * @param action Names what is done: its error is closed by a later success of the same action.
 * @returns The result of `work`; null if it failed.
 */
export async function withNotification<T>(
  trans: ITrans,
  work: Promise<T>,
  during: string,
  after: string | ((result: T) => string),
  action = during
): Promise<T | null> {
  const id = Notification.emit(during, 'in-progress', { autoClose: false });
  // Before it is drawn, JupyterLab drops changes.
  const isDrawn = drawn(id);
  const finish = async (message: string, type: 'success' | 'error', autoClose: number | false) => {
    await isDrawn;
    succeeded(action);
    if (type === 'error') {
      failed.set(action, id);
    }
    Notification.update({ id, message, type, autoClose });
  };
  try {
    const result = await work;
    void finish(typeof after === 'string' ? after : after(result), 'success', SUCCESS_MILLISECONDS);
    return result;
  } catch (error) {
    // Open until the user closes it, or the action succeeds. Not 0: JupyterLab would change it in the list of notifications only.
    void finish(failure(trans, error), 'error', false);
    return null;
  }
}

/** Show that an action failed, until the user closes it or the action succeeds. */
export function notifyFailure(trans: ITrans, error: unknown, action: string): void {
  succeeded(action);
  failed.set(action, Notification.error(failure(trans, error), { autoClose: false }));
}

/** Close the error of an action, which no longer holds. */
export function succeeded(action: string): void {
  const id = failed.get(action);
  if (id !== undefined) {
    failed.delete(action);
    Notification.dismiss(id);
  }
}

/** Return what failed, and what to do next, in one line. */
function failure(trans: ITrans, error: unknown): string {
  const { message, hint } = asProblem(error, trans);
  return `${message} ${hint}`.trim();
}

/** How long to wait for a notification that is perhaps never drawn: the user may have switched them off. */
const LONGEST_MILLISECONDS = 10_000;

/** React's effects, which make a notification accept changes, run shortly after its element is in the page. */
const EFFECTS_MILLISECONDS = 200;

/**
 * Resolve when changes of the notification take effect. JupyterLab loads the library that draws notifications with the
 * first one, which takes a second or more over a slow connection; until then it drops changes.
 */
export function drawn(id: string): Promise<void> {
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
