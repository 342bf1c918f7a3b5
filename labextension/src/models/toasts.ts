/**
 * What happens to slices and proxies, as notifications: one for each session, which changes with the matter and goes
 * away once that is settled. A slice that goes down and heals is one matter and not two.
 */
import { baseName } from './holdings';
import { Model } from './model';
import { ITrans } from './trans';
import { IEvent, ISession } from './wire';

/** What a notification shows. */
export interface IToast {
  readonly type: 'success' | 'warning' | 'error';
  readonly text: string;
  readonly action: 'reconnect' | 'show';
  /** Milliseconds until it closes by itself; false where it stays until the matter is settled. */
  readonly autoClose: number | false;
}

/** The part of JupyterLab's notifications that is used here, so that tests can replace it. */
export interface INotifier {
  emit(toast: IToast, session: ISession): string;
  /** Changes a notification; false when the user has closed it. */
  update(id: string, toast: IToast, session: ISession): boolean;
  dismiss(id: string): void;
}

/** States in which a session has no slices to worry about: it gets a new proxy, or none. */
const OVER: ReadonlySet<unknown> = new Set(['starting', 'closing', 'closed']);

/** How long the good end of a matter is shown. */
const SETTLED_MILLISECONDS = 5000;

export class Toasts {
  /** Whether the user wants notifications. */
  wanted = true;

  constructor(
    private readonly _model: Model,
    private readonly _notifier: INotifier,
    private readonly _trans: ITrans
  ) {
    _model.happened.connect((_, { session, event }) => this._take(session, event));
    _model.changed.connect((_, facet) => facet === 'sessions' && this._settle());
  }

  private _take(session: ISession, event: IEvent): void {
    const matter = this._matters.get(session.id) ?? { id: '', lost: false, down: new Map<unknown, string>() };
    this._matters.set(session.id, matter);
    switch (event.kind) {
      case 'slice-down':
        matter.down.set(event.data.slice, event.message);
        break;
      case 'slice-healed':
        matter.down.delete(event.data.slice);
        break;
      case 'proxy-lost':
        matter.lost = true;
        matter.down.clear();
        break;
      case 'state':
        if (OVER.has(event.data.state) || (matter.lost && event.data.state === 'connected')) {
          this._end(session.id);
        }
        return;
      default:
        return;
    }
    this._show(session, matter, event);
  }

  private _show(session: ISession, matter: IMatter, event: IEvent): void {
    const where = session.notebook ? `${baseName(session.notebook)}: ` : '';
    const down = [...matter.down.values()];
    const toast: IToast = matter.lost
      ? { type: 'error', text: where + event.message, action: 'reconnect', autoClose: false }
      : down.length
        ? {
            type: 'warning',
            text: where + (down.length === 1 ? down[0] : this._trans._n('%1 slice is down.', '%1 slices are down.', down.length)),
            action: 'show',
            autoClose: false
          }
        : { type: 'success', text: where + event.message, action: 'show', autoClose: SETTLED_MILLISECONDS };
    if (matter.id && this._notifier.update(matter.id, toast, session)) {
      return;
    }
    // The good end of a matter whose notification the user closed, or did not want, is no news.
    if (this.wanted && toast.type !== 'success') {
      matter.id = this._notifier.emit(toast, session);
    }
  }

  /** Ends the matters of sessions that are gone; their last events may not have come this far. */
  private _settle(): void {
    for (const id of this._matters.keys()) {
      if (!this._model.sessions.some(session => session.id === id)) {
        this._end(id);
      }
    }
  }

  private _end(session: string): void {
    const matter = this._matters.get(session);
    this._matters.delete(session);
    if (matter?.id) {
      this._notifier.dismiss(matter.id);
    }
  }

  private readonly _matters = new Map<string, IMatter>();
}

/** What is wrong with one session, and the notification that says so. */
interface IMatter {
  id: string;
  lost: boolean;
  /** What was said of each slice that is down, by JAX's index. */
  readonly down: Map<unknown, string>;
}
