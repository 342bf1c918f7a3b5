/** Notifications about what the user has asked for. */
import { Notification } from '@jupyterlab/apputils';

import { asProblem } from '../models/api';
import { ITrans } from '../models/trans';
import { drawn } from './drawn';

/** How long the notification of a success is shown. */
const SUCCESS_MILLISECONDS = 4000;

/** The open notifications of actions that have failed, by the action. */
const failed = new Map<string, string>();

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
export function failure(trans: ITrans, error: unknown): string {
  const { message, hint } = asProblem(error, trans);
  return `${message} ${hint}`.trim();
}
