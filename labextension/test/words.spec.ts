import { notice } from '../src/models/notices';
import { preferences, scopeOf } from '../src/models/preferences';
import { matching } from '../src/models/log';
import { english } from '../src/models/trans';
import { age, slicesSentence, stateWord } from '../src/models/words';
import { session, slice } from './rows';

describe('words', () => {
  it.each([
    [5, '5 s'],
    [65, '1 min 5 s'],
    [700, '11 min'],
    [3700, '1 h 1 min'],
    [90_000, '1 d 1 h'],
    [-5, '0 s']
  ])('says %i seconds as %s', (seconds, words) => {
    expect(age(english, 0, seconds)).toBe(words);
  });

  it('counts slices by state and holder', () => {
    const holder = { session: 's', user: 'u', notebook: '', since: 0, mine: true };
    expect(slicesSentence(english, [slice(), slice({ health: 'down', holder })])).toBe(
      '2 slices, 1 ready, 1 down, 1 mine, 1 free'
    );
  });

  it('says that a session without supervisor was left behind, whatever its record says', () => {
    expect(stateWord(english, session({ alive: false, state: 'connected' }))).toBe('Left behind');
  });

  it('searches a log whatever the case', () => {
    expect(matching(['One', 'two'], 'ONE')).toEqual(['One']);
    expect(matching(['One', 'two'], ' ')).toEqual(['One', 'two']);
  });
});

describe('notice', () => {
  const event = (kind: string) => ({ kind, message: 'Slice 1 is down.', at: 0, data: {} });

  it('tells of slices and lost proxies, and keeps silent about the rest', () => {
    expect(notice(english, session({ notebook: 'a/b.ipynb' }), event('slice-down'))?.text).toBe('b.ipynb: Slice 1 is down.');
    expect(notice(english, session(), event('proxy-lost'))?.action).toBe('reconnect');
    expect(notice(english, session(), event('stage'))).toBeNull();
  });
});

describe('preferences', () => {
  it('reads values of the wrong type as not set', () => {
    expect(preferences({ context: 5, notifications: 'no' })).toMatchObject({ context: '', notifications: true });
  });

  it('looks where the session in front is, else as settings say, else at the youngest session', () => {
    const wanted = preferences({ context: 'set' });
    const mine = session({ scope: { context: 'mine', namespace: '', session: '', local: false } });
    expect(scopeOf(wanted, mine, []).context).toBe('mine');
    expect(scopeOf(wanted, null, [mine]).context).toBe('set');
    expect(scopeOf(preferences({}), null, [mine]).context).toBe('mine');
    expect(scopeOf(preferences({ local: true, context: 'x' }), null, []).local).toBe(true);
  });
});
