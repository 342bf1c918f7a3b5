import { scopeOf } from '../src/models/preferences';
import { english } from '../src/models/trans';
import { age, busySentence, hostWords, lossSentence, refusal } from '../src/models/words';
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

  it('says once that a host has no pod', () => {
    const host = { pod: '', node: '', health: 'down', tone: 'fail', chips: 4, reason: 'no pod' } as const;
    expect(hostWords(english, host)).toBe('no pod');
    expect(hostWords(english, { ...host, reason: 'not started yet' })).toBe('not started yet · no pod');
    expect(hostWords(english, { ...host, pod: 'p', node: 'n', reason: 'OOMKilled' })).toBe('OOMKilled · p · n');
  });
});

describe('scopeOf', () => {
  it('shows the front session’s cluster, else the one in the settings, else the youngest session’s', () => {
    const wanted = { context: 'set' };
    const mine = session({ scope: { context: 'mine', namespace: '', session: '', kernel: '', local: false } });
    expect(scopeOf(wanted, mine, []).context).toBe('mine');
    expect(scopeOf(wanted, null, [mine]).context).toBe('set');
    expect(scopeOf({}, null, [mine]).context).toBe('mine');
    expect(scopeOf({ local: true, context: 'x' }, null, []).local).toBe(true);
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
