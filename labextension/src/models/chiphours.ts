/** How long a session has held its chips. */
import { EVENTS_KEPT } from './model';
import { IEvent, ISession, SessionState } from './sessionrows';
import { mayHaveArrays } from './sessions';

/**
 * Return the hours for which `session` has held its slices, times their chips; null if its events do not say.
 *
 * @param events All events of the session, oldest first.
 * @param now Seconds since the epoch.
 */
export function chipHours(session: ISession, events: readonly IEvent[], now: number): number | null {
  // The oldest events of a long session are dropped, and with them perhaps its beginning.
  if (!events.length || events.length >= EVENTS_KEPT) {
    return null;
  }
  const states = events.filter(event => event.kind === 'state');
  let seconds = 0;
  states.forEach((event, index) => {
    // With its slices, also while they cannot be reached or some are down.
    if (mayHaveArrays({ state: event.data.state as SessionState })) {
      seconds += Math.max(0, (states.at(index + 1)?.at ?? now) - event.at);
    }
  });
  return (seconds / 3600) * session.devices;
}
