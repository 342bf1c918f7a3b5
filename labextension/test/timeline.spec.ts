import { entries } from '../src/models/timeline';
import { english } from '../src/models/trans';
import { EventKind, IEvent, Tone } from '../src/models/sessionrows';
import { clock } from '../src/models/words';

const event = (
  kind: EventKind,
  message: string,
  at: number,
  data: IEvent['data'] = {},
  tone: Tone = 'none'
): IEvent => ({ kind, message, at, tone, data });
const CONNECTING = [
  event('stage', 'Looking for the service.', 10, { stage: 'discover' }),
  event('slice-placed', 'Slice 0 is placed.', 11, { slice: 0, number: 0 }),
  event('stage', 'The tunnel is open.', 12, { stage: 'tunnel' })
];
const CONNECTED = event('state', 'Connected.', 12.14, { state: 'connected' });

describe('entries', () => {
  const texts = (events: IEvent[]) => entries(english, events).map(entry => entry.text);

  it('shows each stage while connecting, and one entry afterwards', () => {
    expect(texts(CONNECTING)).toEqual(CONNECTING.map(each => each.message));
    const [only, ...rest] = entries(english, [...CONNECTING, CONNECTED]);
    expect(only.text).toBe('Connected in 2.1\u00a0s.');
    expect(only.steps).toEqual(CONNECTING);
    expect(rest).toEqual([]);
  });

  it('hides no stage of a failed attempt, and no event in between', () => {
    const failed = event('state', 'The proxy ended.', 13, { state: 'failed' });
    expect(texts([...CONNECTING, failed])).toHaveLength(4);
    const warning = event('warning', 'Slow.', 12.1);
    expect(texts([...CONNECTING, warning, CONNECTED])).toEqual([
      ...CONNECTING.map(each => each.message),
      'Slow.',
      'Connected.'
    ]);
  });

  it('reports the loss of a proxy once, with what it means', () => {
    const lost = event('proxy-lost', 'Pod p was deleted.', 20, { state: 'lost' }, 'fail');
    const state = event('state', 'Pod p was deleted. Its arrays are lost.', 20, { state: 'lost' });
    const [only, ...rest] = entries(english, [lost, state]);
    expect([only.text, only.tone]).toEqual(['Pod p was deleted. Its arrays are lost.', 'fail']);
    expect(rest).toEqual([]);
  });

  it('have the tone of the event', () => {
    const events = [event('elastic', '', 0, {}, 'warn'), event('state', '', 0, { state: 'lost' }, 'fail')];
    expect(entries(english, events).map(entry => entry.tone)).toEqual(['warn', 'fail']);
  });

  it('folds the loss and the recovery of a slice into one span, which can be opened', () => {
    const down = event('slice-down', 'Slice 3 (your 1) is down.', 20, { slice: 1, number: 3 });
    const degraded = event('state', 'Degraded: 1 of 2 slices up.', 20, { state: 'degraded' });
    const training = event('elastic', 'Training goes on.', 21, { what: 'resumed' });
    const healed = event('slice-healed', 'Slice 3 is placed again.', 24.1, { slice: 1, number: 3 });
    const again = event('state', 'All slices are up again.', 24.1, { state: 'connected' });
    expect(texts([down, degraded, training])).toEqual(['Slice 3 (your 1) is down.', 'Training goes on.']);
    const [span, ...rest] = entries(english, [down, degraded, training, healed, again]);
    expect(span.text).toBe(`Slice 3 (your 1) was down for 4.1\u00a0s, until ${clock(24.1)}.`);
    expect([span.from, span.tone, span.event.kind]).toEqual([20, 'ok', 'slice-healed']);
    expect(span.steps).toEqual([down, degraded, healed, again]);
    expect(rest.map(entry => entry.text)).toEqual(['Training goes on.']);
  });

  it('keeps the losses of several slices apart', () => {
    const down = (slice: number, at: number) =>
      event('slice-down', `Slice ${slice} is down.`, at, { slice, number: slice });
    const healed = (slice: number, at: number) => event('slice-healed', '', at, { slice, number: slice });
    expect(texts([down(0, 1), down(1, 2), healed(1, 5), down(1, 6), healed(0, 31)])).toEqual([
      `Slice 0 was down for 30\u00a0s, until ${clock(31)}.`,
      `Slice 1 was down for 3.0\u00a0s, until ${clock(5)}.`,
      'Slice 1 is down.'
    ]);
  });

  it('says of a resume what came back', () => {
    const resuming = event('state', 'A new proxy is connected; the saved arrays are not back yet.', 12.1, {
      state: 'resuming'
    });
    const resumed = event('state', 'Resumed: 4 arrays (1.2 GB).', 30, { state: 'connected' });
    expect(texts([...CONNECTING, resuming, resumed])).toEqual(['Resumed: 4 arrays (1.2 GB).']);
  });

  it('does not take a slice of the next proxy for the one that went down', () => {
    const down = event('slice-down', 'Slice 0 is down.', 1, { slice: 0, number: 0 });
    const lost = event('proxy-lost', 'The proxy is gone.', 2);
    const healed = event('slice-healed', 'Slice 0 is placed again.', 9, { slice: 0, number: 0 });
    expect(texts([down, lost, healed])).toEqual(['Slice 0 is down.', 'The proxy is gone.', 'Slice 0 is placed again.']);
  });

  it('has the tone ok when all slices are up again', () => {
    const healed = event('slice-healed', 'Slice 0 is placed again.', 20, { slice: 0, number: 0 });
    const again = event('state', 'All slices are up again.', 20, { state: 'connected' });
    expect(texts([...CONNECTING, CONNECTED, healed, again])).toEqual([
      'Connected in 2.1\u00a0s.',
      'Slice 0 is placed again.',
      'All slices are up again.'
    ]);
  });
});
