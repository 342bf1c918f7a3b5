/** Notifications about what the user has asked for. */
import { Notification } from '@jupyterlab/apputils';

import { asProblem } from '../models/api';
import { ITrans } from '../models/trans';

/** How long the notification of a success is shown. */
export const SUCCESS_MILLISECONDS = 4000;

/** Show a notification while `work` is in progress, then its result. Never rejects. */
export async function withNotification(
  trans: ITrans,
  work: Promise<unknown>,
  during: string,
  after: string
): Promise<void> {
  const id = Notification.emit(during, 'in-progress', { autoClose: false });
  try {
    await work;
    Notification.update({ id, message: after, type: 'success', autoClose: SUCCESS_MILLISECONDS });
  } catch (error) {
    Notification.update({ id, message: failure(trans, error), type: 'error', autoClose: 0 });
  }
}

/** Return what failed, and what to do next, in one line. */
export function failure(trans: ITrans, error: unknown): string {
  const { message, hint } = asProblem(error, trans);
  return `${message} ${hint}`.trim();
}
