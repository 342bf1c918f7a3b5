import { preferences, scopeOf } from '../src/models/preferences';
import { english } from '../src/models/trans';
import {
  age,
  busySentence,
  devicesWord,
  hostWords,
  lossSentence,
  lostSlices,
  refusal,
  savedSentence,
  sessionTone,
  stateWord
} from '../src/models/words';
import { session } from './rows';

describe('words', () => {
  it.each([
    [5, '5 s'],
    [65, '1 min 5 s'],
    [700, '11 min'],
    [3700, '1 h 1 min'],
    [90_000, '1 d 1 h'],
    [4.9, '< 5 s'],
    [-5, '< 5 s']
  ])('formats %i seconds as %s', (seconds, words) => {
    expect(age(english, 0, seconds)).toBe(words.replace(/ /g, '\u00a0'));
  });

  it('shows how much of a degraded session is left, in amber, or in red if nothing is left', () => {
    const slices = [
      { number: 3, index: 0, up: true },
      { number: 1, index: 1, up: false },
      { number: 0, index: 2, up: false }
    ];
    const degraded = session({ state: 'degraded', slices, devices: 12 });
    expect(stateWord(english, degraded)).toBe('Connected, 1 of 3 slices');
    expect(sessionTone(degraded)).toBe('wait');
    expect(sessionTone({ ...degraded, slices: slices.slice(1) })).toBe('fail');
    expect(devicesWord(english, degraded)).toBe('4 of 12');
    expect(lostSlices(english, degraded)).toEqual(['slice 1', 'slice 0 (your 2)']);
    expect(
      devicesWord(english, { ...degraded, state: 'connected', slices: slices.map(each => ({ ...each, up: true })) })
    ).toBe('12');
  });

  it('says what the end of a proxy costs, as far as it is known', () => {
    const loss = (count: number, bytes: number) => lossSentence(english, { count, bytes }).replace(/\u00a0/g, ' ');
    expect(loss(3, 1.2e9)).toBe('3 arrays (1.2 GB) on its TPUs would be lost.');
    expect(loss(1, 32)).toBe('1 array (32 B) on its TPUs would be lost.');
    expect(loss(0, 0)).toBe('');
    expect(lossSentence(english, null)).toContain('How many it has is not known');
    // A cell may only sleep.
    expect(busySentence(english, session())).toBe('A cell is running: if it uses the TPUs, it fails.');
    expect(busySentence(english, session({ state: 'waiting' }))).toBe('The cell that connects it ends with an error.');
  });

  it('says how far arrays are that are saved or put back', () => {
    const word = (some: Parameters<typeof session>[0]) => stateWord(english, session(some)).replace(/\u00a0/g, ' ');
    const saved = { count: 3, bytes: 4e9, place: 'gs://b/saved/u/suspended-s', at: 0 };
    expect(word({ state: 'suspending', transfer: { done: 1.2e9, total: 4e9, left: 12.3 } })).toBe(
      'Suspending, 1.2 GB of 4.0 GB, about 12 s left'
    );
    expect(word({ state: 'resuming', saved, transfer: { done: 0, total: 4e9, left: null } })).toBe(
      'Resuming, 0 B of 4.0 GB'
    );
    expect(word({ state: 'starting', saved })).toBe('Resuming');
    expect(word({ state: 'resuming', saved })).toBe('Resuming');
  });

  it('says once that a host has no pod', () => {
    const host = { pod: '', node: '', health: 'down', chips: 4, reason: 'no pod' } as const;
    expect(hostWords(english, host)).toBe('no pod');
    expect(hostWords(english, { ...host, reason: 'not started yet' })).toBe('not started yet · no pod');
    expect(hostWords(english, { ...host, pod: 'p', node: 'n', reason: 'OOMKilled' })).toBe('OOMKilled · p · n');
  });

  it('says what is saved of a suspended session', () => {
    const saved = { count: 3, bytes: 1.2e9, place: 'gs://b/saved/u/suspended-s', at: 0 };
    expect(savedSentence(english, saved).replace(/\u00a0/g, ' ')).toMatch(
      /^3 arrays \(1\.2 GB\) were saved at \d+:00:00\.$/
    );
  });

  it('shows no devices without a proxy', () => {
    for (const state of ['starting', 'waiting', 'lost', 'closing', 'failed'] as const) {
      expect(devicesWord(english, session({ state }))).toBe('–');
    }
    expect(devicesWord(english, session({ alive: false }))).toBe('–');
  });

  it('calls a session without supervisor abandoned, whatever its record says', () => {
    expect(stateWord(english, session({ alive: false, state: 'connected' }))).toBe('Abandoned');
    expect(sessionTone(session({ alive: false, state: 'connected' }))).toBe('fail');
    expect(stateWord(english, session({ silent: true, state: 'connected' }))).toBe('Not answering');
    expect(sessionTone(session({ silent: true, state: 'connected' }))).toBe('fail');
    expect(devicesWord(english, session({ silent: true }))).toBe('–');
  });
});

describe('preferences', () => {
  it('treats values of the wrong type as not set', () => {
    expect(preferences({ context: 5, notifications: 'no' })).toMatchObject({ context: '', notifications: true });
  });

  it('shows the front session’s cluster, else the one in the settings, else the youngest session’s', () => {
    const wanted = preferences({ context: 'set' });
    const mine = session({ scope: { context: 'mine', namespace: '', session: '', local: false } });
    expect(scopeOf(wanted, mine, []).context).toBe('mine');
    expect(scopeOf(wanted, null, [mine]).context).toBe('set');
    expect(scopeOf(preferences({}), null, [mine]).context).toBe('mine');
    expect(scopeOf(preferences({ local: true, context: 'x' }), null, []).local).toBe(true);
  });
});

describe('refusal', () => {
  it('says why a notebook cannot be connected', () => {
    expect(refusal(english, null, null)?.message).toBe('No notebook is in front.');
    const message = 'Session ab is suspended since 23:06:13.';
    const verdicts = { 'connect-otherwise': { does: 'refuses', sentence: message, hint: '%pathways resume' } } as const;
    expect(refusal(english, {}, session({ verdicts }))).toEqual({ message, hint: '%pathways resume' });
  });

  it('refuses neither a notebook without a session, nor one whose session does not hinder it', () => {
    expect(refusal(english, {}, null)).toBe(null);
    expect(
      refusal(english, {}, session({ verdicts: { 'connect-otherwise': { does: 'does', sentence: '', hint: '' } } }))
    ).toBe(null);
  });
});
