/**
 * Events as entries of a timeline. While a session connects, each stage is an entry; afterwards they are folded into one,
 * "Connected in 2.1 s", which can be opened.
 */
import { ITrans } from './trans';
import { Tone } from './words';
import { IEvent } from './wire';

export interface IEntry {
  /** The event that is shown; the last one of a fold. */
  readonly event: IEvent;
  readonly text: string;
  readonly tone: Tone;
  /** The folded events, oldest first; empty for a plain entry. */
  readonly steps: readonly IEvent[];
}

/** Kinds of events that are steps of connecting. */
const STEPS: ReadonlySet<string> = new Set(['stage', 'slice-placed']);
const TONES: { readonly [kind: string]: Tone } = {
  'slice-placed': 'ok',
  'slice-down': 'fail',
  'slice-healed': 'ok',
  'proxy-lost': 'fail',
  'supervisor-lost': 'fail',
  warning: 'wait'
};
/** Tones of events of an elastic training run, by `data.what`. */
const ELASTIC_TONES: { readonly [what: string]: Tone } = {
  'slice-up': 'ok',
  detected: 'fail',
  waiting: 'wait',
  retry: 'wait',
  injected: 'wait',
  restored: 'wait',
  resumed: 'ok',
  grown: 'ok'
};
const STATE_TONES: { readonly [state: string]: Tone } = {
  connected: 'ok',
  degraded: 'wait',
  interrupted: 'wait',
  lost: 'fail',
  failed: 'fail'
};

export function eventTone(event: IEvent): Tone {
  switch (event.kind) {
    case 'state':
      return STATE_TONES[String(event.data.state)] ?? 'none';
    case 'elastic':
      return ELASTIC_TONES[String(event.data.what)] ?? 'none';
    default:
      return TONES[event.kind] ?? 'none';
  }
}

/** Return entries in the order of `events`. */
export function entries(trans: ITrans, events: readonly IEvent[]): readonly IEntry[] {
  const made: IEntry[] = [];
  let steps: IEvent[] = [];
  const plain = (event: IEvent): IEntry => ({ event, text: event.message, tone: eventTone(event), steps: [] });
  for (const event of events) {
    if (isStep(event)) {
      steps.push(event);
      continue;
    }
    if (event.kind === 'state' && event.data.state === 'connected' && steps.length) {
      const seconds = (event.at - steps[0].at).toFixed(1);
      made.push({ event, text: trans.__('Connected in %1 s.', seconds), tone: 'ok', steps });
    } else {
      made.push(...steps.map(plain), plain(event));
    }
    steps = [];
  }
  return [...made, ...steps.map(plain)];
}

function isStep(event: IEvent): boolean {
  return (
    STEPS.has(event.kind) ||
    (event.kind === 'state' && (event.data.state === 'starting' || event.data.state === 'waiting'))
  );
}
