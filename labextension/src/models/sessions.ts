/** Sessions: their names, whether their states come with slices and arrays, and what can be done with them now. */
import { baseName } from './holdings';
import { ISaved, ISession, SessionCommand, SessionState } from './sessionrows';

/** The name of a session's notebook, else its id. */
export function sessionName({ notebook, id }: Pick<ISession, 'notebook' | 'id'>): string {
  return baseName(notebook) || id;
}

/** The number of slices that a session holds. */
export function slicesOf({ instances }: Pick<ISession, 'instances'>): number {
  return Object.values(instances).reduce((sum, count) => sum + count, 0);
}

/** The name of a save, which is the last part of its place. */
export function saveName({ place }: Pick<ISaved, 'place'>): string {
  return baseName(place);
}

/** States in which a session has a proxy, and arrays that would be lost with it. */
const WITH_ARRAYS: ReadonlySet<SessionState> = new Set([
  'connected',
  'degraded',
  'interrupted',
  'suspending',
  'resuming'
]);

/** Whether a session may have arrays: not before it is connected, and not once its proxy is lost. */
export function mayHaveArrays(session: Pick<ISession, 'state'>): boolean {
  return WITH_ARRAYS.has(session.state);
}

/** Whether a session has slices that it can use. */
export function isConnected(session: Pick<ISession, 'state'>): boolean {
  return session.state === 'connected' || session.state === 'degraded';
}

/** Whether a command acts on a session now, perhaps after a question. */
export function acts(session: Pick<ISession, 'verdicts'>, command: SessionCommand): boolean {
  const does = session.verdicts[command]?.does;
  return does === 'does' || does === 'asks';
}

/** Whether a command has a button: also one that has to wait, which is disabled and says why. */
export function isOffered(session: Pick<ISession, 'verdicts'>, command: SessionCommand): boolean {
  return acts(session, command) || session.verdicts[command]?.does === 'waits';
}

/** What a command costs, or why it does not act, and what to do instead; empty where it just acts. */
export function verdictSentence(session: Pick<ISession, 'verdicts'>, command: SessionCommand): string {
  const { sentence = '', hint = '' } = session.verdicts[command] ?? {};
  return `${sentence} ${hint}`.trim();
}
