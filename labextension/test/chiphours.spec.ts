import { chipHours } from '../src/models/chiphours';
import { EVENTS_KEPT } from '../src/models/model';
import { IEvent } from '../src/models/sessionrows';
import { session } from './rows';

const state = (name: string, at: number): IEvent => ({
  kind: 'state',
  message: '',
  at,
  tone: 'none',
  data: { state: name }
});
const stage: IEvent = { kind: 'stage', message: '', at: 0, tone: 'none', data: {} };
const each = session({ devices: 8 });

describe('chipHours', () => {
  it('is the time since the session connected, times its chips', () => {
    expect(chipHours(each, [stage, state('connected', 100)], 1900)).toBe(4);
  });

  it('leaves out the time without a proxy', () => {
    const events = [state('waiting', 0), state('connected', 3600), state('degraded', 4000), state('lost', 5400)];
    expect(chipHours(each, events, 9000)).toBe(4);
    expect(chipHours(each, [...events, state('starting', 6000), state('connected', 7200)], 9000)).toBe(8);
  });

  it('is unknown without events, and when the oldest ones are gone', () => {
    expect(chipHours(each, [], 1900)).toBeNull();
    expect(chipHours(each, Array(EVENTS_KEPT).fill(state('connected', 0)), 1900)).toBeNull();
  });
});
