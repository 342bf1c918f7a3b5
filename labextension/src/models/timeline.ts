/**
 * Events as entries of a timeline. The stages of connecting matter while they happen; afterwards they are one entry,
 * "Connected in 2.1 s", which can be opened.
 */
import { ITrans } from './trans';
import { Tone } from './words';
import { IEvent } from './wire';

export interface IEntry {
  /** The event that is shown; of a fold, its last. */
  readonly event: IEvent;
  readonly text: string;
  readonly tone: Tone;
  /** The events that led to it, oldest first; empty where there is nothing to open. */
  readonly steps: readonly IEvent[];
}

/** Kinds of events that connecting consists of. */
const STEPS: ReadonlySet<string> = new Set(['stage', 'slice-placed']);
const TONES: { readonly [kind: string]: Tone } = {
  'slice-placed': 'ok',
  'slice-down': 'fail',
  'slice-healed': 'ok',
  'proxy-lost': 'fail',
  'supervisor-lost': 'fail',
  warning: 'wait'
};
const STATE_TONES: { readonly [state: string]: Tone } = { connected: 'ok', degraded: 'wait', lost: 'fail', failed: 'fail' };

export function eventTone(event: IEvent): Tone {
  return event.kind === 'state' ? (STATE_TONES[String(event.data.state)] ?? 'none') : (TONES[event.kind] ?? 'none');
}

/** Entries in the order of `events`. */
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
  return STEPS.has(event.kind) || (event.kind === 'state' && (event.data.state === 'starting' || event.data.state === 'waiting'));
}
