/**
 * Events as entries of a timeline. While a session connects, each stage is an entry; afterwards they are folded into one,
 * "Connected in 2.1 s", which can be opened. So are the loss of a slice and its recovery.
 */
import { sliceName } from './holdings';
import { ITrans } from './trans';
import { age, clock, sentence } from './words';
import { EventKind, IEvent, Tone } from './sessionrows';

export interface IEntry {
  /** The event that is shown; the last one of a fold. */
  readonly event: IEvent;
  readonly text: string;
  readonly tone: Tone;
  /** When it began, in seconds since the epoch; before its event for a loss that is over. */
  readonly from: number;
  /** The folded events, oldest first; empty for a plain entry. */
  readonly steps: readonly IEvent[];
}

/** Kinds of events that are steps of connecting. */
const STEPS: ReadonlySet<EventKind> = new Set(['stage', 'slice-placed']);
/** States that a session enters because a slice goes down or recovers. */
const CAUSED: ReadonlySet<unknown> = new Set(['degraded', 'connected']);
/** States on the way to being connected, or resumed. */
const CONNECTING: ReadonlySet<unknown> = new Set(['starting', 'waiting', 'resuming']);
/** States after the loss of a proxy; suspended where all arrays were saved. */
const WITHOUT_PROXY: ReadonlySet<unknown> = new Set(['lost', 'suspended']);

/** Return entries in the order in which they began. */
export function entries(trans: ITrans, events: readonly IEvent[]): readonly IEntry[] {
  return withSpans(trans, withConnecting(trans, events));
}

function withConnecting(trans: ITrans, events: readonly IEvent[]): readonly IEntry[] {
  const made: IEntry[] = [];
  let steps: IEvent[] = [];
  const plain = (event: IEvent): IEntry => ({
    event,
    text: event.message,
    tone: event.tone,
    from: event.at,
    steps: []
  });
  for (const event of events) {
    if (isStep(event)) {
      steps.push(event);
      continue;
    }
    if (event.kind === 'state' && event.data.state === 'connected' && steps.length) {
      const seconds = (event.at - steps[0].at).toFixed(1);
      const isResumed = steps.some(each => each.data.state === 'resuming');
      const text = isResumed ? event.message : unbroken(trans.__('Connected in %1 s.', seconds));
      made.push({ event, text, tone: 'ok', from: event.at, steps });
    } else {
      made.push(...steps.map(plain), plain(event));
    }
    steps = [];
  }
  return [...made, ...steps.map(plain)];
}

/** Keep a number and its unit on one line. */
function unbroken(text: string): string {
  return text.replace(/(\d) (?=\p{L})/gu, '$1\u00a0');
}

/**
 * Fold the loss and the recovery of a slice into one entry, "Slice 1 was down for 4.1 s, until 12:03:14.", together with
 * the changes of the session's state that they caused.
 */
function withSpans(trans: ITrans, all: readonly IEntry[]): readonly IEntry[] {
  const made: IEntry[] = [];
  /** Index in `made` of the loss of each slice that is down, by JAX's index of the slice. */
  const down = new Map<unknown, number>();
  /** Index of the entry of the previous event, if that was about a slice. */
  let about: number | null = null;
  for (const entry of all) {
    const { event } = entry;
    const lost = down.get(event.data.slice);
    if (event.kind === 'slice-healed' && lost !== undefined) {
      down.delete(event.data.slice);
      made[lost] = span(trans, made[lost], event);
      about = lost;
    } else if (about !== null && event.kind === 'state' && CAUSED.has(event.data.state)) {
      made[about] = { ...made[about], steps: [...opened(made[about]), event] };
      about = null;
    } else if (
      event.kind === 'state' &&
      WITHOUT_PROXY.has(event.data.state) &&
      made.at(-1)?.event.kind === 'proxy-lost'
    ) {
      // The same again, with what it means.
      made[made.length - 1] = { ...made[made.length - 1], text: entry.text };
      about = null;
    } else {
      about = null;
      if (event.kind === 'slice-down') {
        about = made.length;
        if (lost === undefined) {
          down.set(event.data.slice, about);
        }
      } else if (event.kind === 'proxy-lost' || event.data.state === 'starting') {
        // The next proxy has slices of its own.
        down.clear();
      }
      made.push(entry);
    }
  }
  return made;
}

function span(trans: ITrans, loss: IEntry, healed: IEvent): IEntry {
  const seconds = healed.at - loss.from;
  const { slice, number } = loss.event.data;
  const name = sliceName(trans, typeof number === 'number' ? number : null, typeof slice === 'number' ? slice : null);
  const text = trans.__(
    '%1 was down for %2, until %3.',
    sentence(name),
    seconds < 10 ? unbroken(trans.__('%1 s', seconds.toFixed(1))) : age(trans, loss.from, healed.at),
    clock(healed.at)
  );
  return { event: healed, text, tone: 'ok', from: loss.from, steps: [...opened(loss), healed] };
}

/** The events of an entry, for the entry that takes its place. */
function opened({ event, steps }: IEntry): readonly IEvent[] {
  return steps.length ? steps : [event];
}

function isStep(event: IEvent): boolean {
  return STEPS.has(event.kind) || (event.kind === 'state' && CONNECTING.has(event.data.state));
}
