/**
 * JupyterLab draws a notification asynchronously, and loses changes that are made before it is drawn: a slice that goes
 * down and recovers within the same moment would be shown as down until the user closes the notification.
 */

/** JupyterLab's notifications, with their content and options as one value. */
export interface INotifications<Content> {
  emit(content: Content): string;
  update(id: string, content: Content): unknown;
  dismiss(id: string): void;
  /** Return whether the notification exists. */
  has(id: string): boolean;
  /** Resolve when changes of the notification take effect. */
  drawn(id: string): Promise<void>;
}

/** Applies changes of a notification in order, but only once it is drawn. */
export class DrawnNotifications<Content> {
  constructor(private readonly _notifications: INotifications<Content>) {}

  /** Show a notification, and return its id. */
  emit(content: Content): string {
    const id = this._notifications.emit(content);
    this._drawn.set(id, this._notifications.drawn(id));
    return id;
  }

  /** Update a notification; returns false if the user has closed it. */
  update(id: string, content: Content): boolean {
    if (!this._notifications.has(id)) {
      return false;
    }
    void this._drawn.get(id)?.then(() => this._notifications.update(id, content));
    return true;
  }

  dismiss(id: string): void {
    void this._drawn.get(id)?.then(() => this._notifications.dismiss(id));
    this._drawn.delete(id);
  }

  private readonly _drawn = new Map<string, Promise<void>>();
}
