/** Asks about sessions in which nothing was computed for long, as their supervisors report: once, until they are used. */
import { Model } from './model';
import { ISession } from './sessionrows';
import { isConnected, sessionName } from './sessions';

/** Asks the user whether to suspend, keep or disconnect a session. */
export interface IUnusedAsker {
  /** Returns the id of the notification. */
  ask(text: string, session: ISession): string;
  dismiss(id: string): void;
}

export class UnusedSessions {
  constructor(
    private readonly _model: Model,
    private readonly _asker: IUnusedAsker
  ) {
    _model.changed.connect((_, facet) => (facet === 'sessions' || facet === 'link') && this._check());
  }

  /** Whether the user wants to be asked. */
  set wanted(wanted: boolean) {
    this._wanted = wanted;
    this._check();
  }

  private _check(): void {
    if (!this._model.linked) {
      // What the sessions are now is not known.
      return;
    }
    const unused = new Map(
      this._model.sessions.filter(each => this._wanted && isUnused(each)).map(each => [each.id, each])
    );
    for (const [id, { since, notification }] of this._asked) {
      if (unused.get(id)?.unused_since !== since) {
        this._asked.delete(id);
        this._asker.dismiss(notification);
      }
    }
    for (const [id, session] of unused) {
      if (!this._asked.has(id)) {
        const notification = this._asker.ask(`${sessionName(session)}: ${session.advice}`, session);
        this._asked.set(id, { since: session.unused_since, notification });
      }
    }
  }

  private _wanted = true;
  /** The sessions that were asked about, by id: since when they were unused then, and the notification. */
  private readonly _asked = new Map<string, { readonly since: number; readonly notification: string }>();
}

/** Whether nothing was computed in a session for long, though it has slices. */
export function isUnused(session: ISession): boolean {
  return session.alive && !session.silent && isConnected(session) && session.unused_since > 0;
}
