import {
  canDisconnect,
  canProfile,
  canReconnect,
  canResume,
  hasLog,
  mayHaveArrays,
  sessionName
} from '../src/models/sessions';
import { session } from './rows';

const STATES = [
  'starting',
  'waiting',
  'connected',
  'degraded',
  'interrupted',
  'lost',
  'suspended',
  'closing',
  'closed',
  'failed'
] as const;

describe('A session', () => {
  it('is called like its notebook, else by its id', () => {
    expect(sessionName({ id: 'ab', notebook: 'work/train.ipynb' })).toBe('train.ipynb');
    expect(sessionName({ id: 'ab', notebook: '' })).toBe('ab');
  });

  it.each([
    ['may have arrays', mayHaveArrays, ['connected', 'degraded', 'interrupted']],
    ['can be profiled', canProfile, ['connected', 'degraded']],
    // A suspended one whose arrays are not saved needs nothing but slices.
    ['can get a new proxy', canReconnect, ['connected', 'degraded', 'interrupted', 'lost', 'suspended']],
    ['can be ended', canDisconnect, STATES.filter(state => state !== 'closing')],
    ['has a log', hasLog, STATES.filter(state => state !== 'suspended')]
  ])('%s in some states only', (_, can, states) => {
    expect(STATES.filter(state => can(session({ state })))).toEqual(states);
  });

  it('whose supervisor is dead cannot be changed, and one that is silent gets no new proxy', () => {
    const dead = session({ alive: false });
    expect([canProfile, canReconnect, canDisconnect].some(can => can(dead))).toBe(false);
    expect(canReconnect(session({ silent: true }))).toBe(false);
    expect(hasLog(session({ pod: '' }))).toBe(false);
  });

  it('can be resumed while its arrays are saved, and gets a proxy without them only where they are not', () => {
    const saved = { count: 3, bytes: 1.2e9, place: 'gs://b/saved/u/suspended-s', at: 0 };
    const suspended = session({ state: 'suspended', saved });
    expect(canResume(suspended)).toBe(true);
    expect(canReconnect(suspended)).toBe(false);
    expect(canReconnect({ ...suspended, saved: null })).toBe(true);
    // It got a proxy in another way, and waits for its arrays.
    expect(canResume({ ...suspended, state: 'connected' })).toBe(true);
    const others = [
      { saved: null },
      { state: 'starting' },
      { state: 'closing' },
      { alive: false },
      { silent: true }
    ] as const;
    expect(others.filter(some => canResume({ ...suspended, ...some }))).toEqual([]);
  });
});
