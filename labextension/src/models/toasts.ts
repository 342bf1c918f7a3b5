/**
 * Notifications about slices and proxies: at most one for each session. It is updated while the incident lasts, and
 * closed when the incident is over. A slice that goes down and recovers is one incident, not two.
 */
import { baseName } from './holdings';
import { Model } from './model';
import { ITrans } from './trans';
import { IEvent, ISession } from './sessionrows';
import { sessionName } from './sessions';

/** Content of a notification. */
export interface IToast {
  readonly type: 'success' | 'warning' | 'error';
  readonly text: string;
  readonly action: 'reconnect' | 'show';
  /** Milliseconds until it closes; false keeps it open until the incident is over. */
  readonly autoClose: number | false;
}

/** The part of JupyterLab's notifications that is used here, so that tests can replace it. */
export interface INotifier {
  emit(toast: IToast, session: ISession): string;
  /** Update a notification; returns false if the user has closed it. */
  update(id: string, toast: IToast, session: ISession): boolean;
  dismiss(id: string): void;
}

/** States in which a session holds no slices: it is getting a new proxy, or ending. */
const WITHOUT_SLICES: ReadonlySet<unknown> = new Set(['starting', 'suspended', 'closing', 'closed']);

/** States that come with a new proxy. */
const WITH_SLICES: ReadonlySet<unknown> = new Set(['connected', 'resuming']);

/** How long the notification of a recovery is shown. */
const RECOVERY_MILLISECONDS = 5000;

export class Toasts {
  /** Whether the user wants notifications. */
  wanted = true;

  constructor(
    private readonly _model: Model,
    private readonly _notifier: INotifier,
    private readonly _trans: ITrans
  ) {
    _model.happened.connect((_, { session, event }) => this._take(session, event));
    _model.changed.connect((_, facet) => {
      if (facet === 'sessions') {
        this._endGone();
      } else if (facet === 'front' && _model.session) {
        this._forgetNews(_model.session.id);
      }
    });
  }

  private _take(session: ISession, event: IEvent): void {
    const incident = this._incidents.get(session.id) ?? {
      id: '',
      lost: false,
      waited: false,
      down: new Map<unknown, string>()
    };
    this._incidents.set(session.id, incident);
    switch (event.kind) {
      case 'slice-down':
        incident.down.set(event.data.slice, event.message);
        break;
      case 'slice-healed':
        incident.down.delete(event.data.slice);
        break;
      case 'proxy-lost':
        if (event.data.state === 'suspended') {
          // Its arrays are saved, and nothing needs to be done at once.
          return;
        }
        incident.lost = true;
        incident.down.clear();
        break;
      case 'state':
        if (event.data.state === 'waiting') {
          incident.waited = true;
          return;
        }
        if (incident.waited && WITH_SLICES.has(event.data.state)) {
          incident.waited = false;
          this._announce(session);
          return;
        }
        this._forgetNews(session.id);
        if (WITHOUT_SLICES.has(event.data.state) || (incident.lost && WITH_SLICES.has(event.data.state))) {
          this._end(session.id);
        }
        return;
      default:
        return;
    }
    this._show(session, incident, event);
  }

  /** Announce the end of a wait for slices: the user may be doing something else by now. */
  private _announce(session: ISession): void {
    if (this.wanted) {
      const text = this._trans.__('%1 is connected: the slices it waited for became free.', sessionName(session));
      // Who has the notebook in front sees it there.
      const autoClose = this._model.session?.id === session.id ? RECOVERY_MILLISECONDS : false;
      this._news.set(session.id, this._notifier.emit({ type: 'success', text, action: 'show', autoClose }, session));
    }
  }

  /** Close the news that a session is connected: it has been seen, or is over. */
  private _forgetNews(session: string): void {
    const id = this._news.get(session);
    if (id !== undefined) {
      this._news.delete(session);
      this._notifier.dismiss(id);
    }
  }

  private _show(session: ISession, incident: IIncident, event: IEvent): void {
    const where = session.notebook ? `${baseName(session.notebook)}: ` : '';
    const down = [...incident.down.values()];
    const toast: IToast = incident.lost
      ? { type: 'error', text: where + event.message, action: 'reconnect', autoClose: false }
      : down.length
        ? {
            type: 'warning',
            text:
              where +
              (down.length === 1 ? down[0] : this._trans._n('%1 slice is down.', '%1 slices are down.', down.length)),
            action: 'show',
            autoClose: false
          }
        : {
            type: 'success',
            text: where + event.message,
            action: 'show',
            autoClose: RECOVERY_MILLISECONDS
          };
    if (incident.id && this._notifier.update(incident.id, toast, session)) {
      return;
    }
    // Do not report a recovery if the user closed the notification of the failure, or wants none.
    if (this.wanted && toast.type !== 'success') {
      incident.id = this._notifier.emit(toast, session);
    }
  }

  /** End the incidents of sessions that are gone, whose last events may not have arrived. */
  private _endGone(): void {
    for (const id of this._incidents.keys()) {
      if (!this._model.sessions.some(session => session.id === id)) {
        this._end(id);
      }
    }
  }

  private _end(session: string): void {
    this._forgetNews(session);
    const incident = this._incidents.get(session);
    this._incidents.delete(session);
    if (incident?.id) {
      this._notifier.dismiss(incident.id);
    }
  }

  /** The notifications that a session is connected after a wait, by its id. */
  private readonly _news = new Map<string, string>();
  private readonly _incidents = new Map<string, IIncident>();
}

/** What is wrong with one session, and the id of its notification. */
interface IIncident {
  id: string;
  lost: boolean;
  /** Whether it waits for slices that others hold. */
  waited: boolean;
  /** The message about each slice that is down, by JAX's index. */
  readonly down: Map<unknown, string>;
}
