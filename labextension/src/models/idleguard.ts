/**
 * Notices sessions that hold slices for a notebook in which no cell has run for long. It asks once whether to disconnect;
 * of a session that suspends by itself it says when, shortly before.
 *
 * The Jupyter server knows when a kernel last had anything to do with a cell: it is idle, and sent its last output or
 * change of state at that time. Whether the TPUs compute is not known here: a thread of the kernel may use them without
 * a cell. So what is said is that no cell has run, and the user decides.
 */
import { Model } from './model';
import { ITrans } from './trans';
import { ISession } from './sessionrows';
import { isConnected, sessionName } from './sessions';
import { clock } from './words';

/** A kernel as the Jupyter server reports it. */
export interface IKernel {
  readonly id: string;
  readonly execution_state?: string;
  /** ISO 8601. */
  readonly last_activity?: string;
}

export interface IKernels {
  /** The kernels that run, as last reported. */
  running(): Iterable<IKernel>;
  /** Ask the server again. */
  refresh(): Promise<void>;
}

/** Asks the user; the answers are "Disconnect" and "Keep", which is the only one if it suspends by itself. */
export interface IIdleAsker {
  /** Returns the id of the notification. */
  ask(text: string, session: ISession): string;
  dismiss(id: string): void;
}

/** Return since when a session holds slices while no cell ran, in seconds since the epoch; null if a cell may run. */
export function idleSince(session: ISession, kernels: Iterable<IKernel>): number | null {
  if (!session.alive || !isConnected(session) || !session.kernel_id) {
    return null;
  }
  const kernel = [...kernels].find(each => each.id === session.kernel_id);
  const active = Date.parse(kernel?.last_activity ?? '') / 1000;
  if (kernel?.execution_state !== 'idle' || !Number.isFinite(active)) {
    return null;
  }
  // A reconnect from the sidebar runs no cell, but the user wants the slices from then on.
  return Math.max(active, session.state_since);
}

export class IdleGuard {
  /** Minutes without a cell after which the user is asked; 0 for never. */
  minutes = 0;

  constructor(
    private readonly _model: Model,
    private readonly _kernels: IKernels,
    private readonly _asker: IIdleAsker,
    private readonly _trans: ITrans
  ) {}

  /**
   * Ask about each session that is idle for too long and was not asked about since its last cell; close questions that
   * are settled. Call it every few seconds.
   *
   * @param now Seconds since the epoch.
   */
  async check(now: number): Promise<void> {
    this._close();
    if (!this._due(now).length || this._checking) {
      return;
    }
    this._checking = true;
    try {
      // The list may be some seconds old, and a cell may have begun since.
      await this._kernels.refresh();
      for (const [session, since] of this._due(now)) {
        this._asked.set(session.id, { since, id: this._asker.ask(this._text(session, since), session) });
      }
    } catch {
      // The server does not answer; the next check asks again.
    } finally {
      this._checking = false;
    }
  }

  private _due(now: number): readonly (readonly [ISession, number])[] {
    const due: [ISession, number][] = [];
    for (const session of this._model.linked && this.minutes > 0 ? this._model.sessions : []) {
      const since = this._since(session);
      // One that suspends by itself is asked about only if it should have been suspended long ago: its kernel may be
      // unable to, as without the magics.
      const patience = this.minutes * 60 + 2 * session.suspend_after;
      const isDue = session.suspends_at > 0 || (since !== null && now - since >= patience);
      if (since !== null && isDue && !this._asked.has(session.id)) {
        due.push([session, since]);
      }
    }
    return due;
  }

  /** What a question is about, which another value settles: when the session suspends by itself, or since when it is idle. */
  private _since(session: ISession): number | null {
    return (session.alive && session.suspends_at) || idleSince(session, this._kernels.running());
  }

  private _close(): void {
    for (const [id, { since, id: notification }] of this._asked) {
      const session = this._model.sessions.find(each => each.id === id);
      if (!session || this.minutes <= 0 || this._since(session) !== since) {
        this._asked.delete(id);
        this._asker.dismiss(notification);
      }
    }
  }

  private _text(session: ISession, since: number): string {
    const name = sessionName(session);
    if (session.suspends_at > 0) {
      return this._trans.__(
        '%1: nothing is computed. At %2 its arrays are saved and its slices freed.',
        name,
        clock(since)
      );
    }
    const slices = Object.values(session.instances).reduce((sum, count) => sum + count, 0);
    return this._trans._n(
      '%2: no cell has run since %3. It holds %1 slice.',
      '%2: no cell has run since %3. It holds %1 slices.',
      slices,
      name,
      clock(since)
    );
  }

  private _checking = false;
  /** Sessions that were asked about, by id: since when they were idle then, and the notification. */
  private readonly _asked = new Map<string, { readonly since: number; readonly id: string }>();
}
