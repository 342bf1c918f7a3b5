/** Sessions: their names, whether their states come with slices and arrays, and what can be done with them now. */
import { baseName } from './holdings';
import { ISession, SessionState } from './sessionrows';

/** The name of a session's notebook, else its id. */
export function sessionName({ notebook, id }: Pick<ISession, 'notebook' | 'id'>): string {
  return baseName(notebook) || id;
}

/** States in which a session has a proxy, and arrays that would be lost with it. */
const WITH_ARRAYS: ReadonlySet<SessionState> = new Set(['connected', 'degraded', 'interrupted']);

/** Whether a session may have arrays: not before it is connected, and not once its proxy is lost. */
export function mayHaveArrays(session: Pick<ISession, 'state'>): boolean {
  return WITH_ARRAYS.has(session.state);
}

/** Whether a session has slices that it can use. */
export function isConnected(session: Pick<ISession, 'state'>): boolean {
  return session.state === 'connected' || session.state === 'degraded';
}

/** Whether a session can be ended; “Clean up stale proxies” removes what a dead supervisor has left. */
export function canDisconnect(session: Pick<ISession, 'state' | 'alive'>): boolean {
  return session.alive && session.state !== 'closing';
}

/** Whether a session can get a new proxy now. */
export function canReconnect(session: Pick<ISession, 'state' | 'alive' | 'silent' | 'saved'>): boolean {
  return session.alive && !session.silent && (isWithout(session) || mayHaveArrays(session));
}

/** Whether a session has no proxy, and no saved arrays that only a resume would restore. */
function isWithout(session: Pick<ISession, 'state' | 'saved'>): boolean {
  return session.state === 'lost' || (session.state === 'suspended' && !session.saved);
}

/** Whether a session's saved arrays can be restored now: it is suspended, or has a proxy again and not them. */
export function canResume(session: Pick<ISession, 'state' | 'alive' | 'silent' | 'saved'>): boolean {
  return (
    session.alive && !session.silent && !!session.saved && (session.state === 'suspended' || mayHaveArrays(session))
  );
}

/** Whether the chips of a session can be traced. */
export function canProfile(session: Pick<ISession, 'state' | 'alive'>): boolean {
  return session.alive && isConnected(session);
}

/** Whether a session has a proxy whose log can be read. */
export function hasLog(session: Pick<ISession, 'state' | 'pod'>): boolean {
  return !!session.pod && session.state !== 'suspended';
}
