/**
 * JupyterLab draws a notification asynchronously, and loses changes that are made before it is drawn: a slice that goes
 * down and recovers within the same moment would be shown as down until the user closes the notification.
 */
import { INotifier, IToast } from './toasts';
import { ISession } from './sessionrows';

/** Notifications, which also know whether one is still open, and when it is drawn. */
export interface IOpenNotifier extends INotifier {
  /** Return whether the notification exists. */
  has(id: string): boolean;
  /** Resolve when changes of the notification take effect. */
  drawn(id: string): Promise<void>;
}

/** Applies changes of a notification in order, but only once it is drawn. */
export class DrawnNotifier implements INotifier {
  constructor(private readonly _notifier: IOpenNotifier) {}

  emit(toast: IToast, session: ISession): string {
    const id = this._notifier.emit(toast, session);
    this._drawn.set(id, this._notifier.drawn(id));
    return id;
  }

  update(id: string, toast: IToast, session: ISession): boolean {
    if (!this._notifier.has(id)) {
      return false;
    }
    void this._drawn.get(id)?.then(() => this._notifier.update(id, toast, session));
    return true;
  }

  dismiss(id: string): void {
    void this._drawn.get(id)?.then(() => this._notifier.dismiss(id));
    this._drawn.delete(id);
  }

  private readonly _drawn = new Map<string, Promise<void>>();
}
