import { entries } from '../src/models/timeline';
import { english } from '../src/models/trans';
import { IEvent } from '../src/models/wire';

const event = (kind: string, message: string, at: number, data: IEvent['data'] = {}): IEvent => ({
  kind,
  message,
  at,
  data
});
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
    expect(only.text).toBe('Connected in 2.1 s.');
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

  it('have the tone of the event', () => {
    const states = ['connected', 'degraded', 'lost', 'closing'].map(state => event('state', '', 0, { state }));
    expect(entries(english, states).map(entry => entry.tone)).toEqual(['ok', 'wait', 'fail', 'none']);
  });

  it('have the tone of what happened to a training run', () => {
    const happened = ['detected', 'restored', 'resumed', 'unheard-of'].map(what => event('elastic', '', 0, { what }));
    expect(entries(english, happened).map(entry => entry.tone)).toEqual(['fail', 'wait', 'ok', 'none']);
  });

  it('has the tone ok when all slices are up again', () => {
    const healed = event('slice-healed', 'Slice 0 is placed again.', 20, { slice: 0, number: 0 });
    const again = event('state', 'All slices are up again.', 20, { state: 'connected' });
    expect(texts([...CONNECTING, CONNECTED, healed, again])).toEqual([
      'Connected in 2.1 s.',
      'Slice 0 is placed again.',
      'All slices are up again.'
    ]);
  });
});
