import { Holdings, ownerWord, sameHolding, sliceName } from '../src/models/holdings';
import { english } from '../src/models/trans';
import { holdingWord, silenceSentence, sliceSentence, slicesSentence, sliceWord } from '../src/models/words';
import { numbered, proxy, session } from './rows';

const holder = (id: string, user: string, mine: boolean, notebook = '') => ({
  session: id,
  user,
  notebook,
  since: 3,
  mine,
  reclaimable: null
});

describe('Holdings', () => {
  const front = session({ id: 'front', slices: [{ number: 1, index: 0, up: true }] });
  const second = session({ id: 'second', notebook: 'work/train.ipynb', slices: [{ number: 0, index: 0, up: true }] });
  const rows = [
    numbered(0, { holder: holder('second', 'me', true) }),
    numbered(1, { holder: holder('front', 'me', true) }),
    numbered(2, { holder: holder('third', 'alice', false) }),
    numbered(3)
  ];
  const proxies = [
    proxy({ session: 'front' }),
    proxy({ session: 'second' }),
    proxy({ session: 'third', user: 'alice', mine: false })
  ];

  it('distinguishes three owners and free slices', () => {
    const holdings = new Holdings(front, [front, second], proxies);
    expect(rows.map(row => holdings.of(row).owner)).toEqual(['mine', 'this', 'other', 'free']);
    expect(rows.map(row => ownerWord(english, holdings.of(row)))).toEqual([
      'my other notebook train.ipynb',
      'this notebook',
      'alice',
      ''
    ]);
    expect(rows.map(row => sliceWord(english, row, holdings.of(row)))).toEqual([
      'in use by my other notebook train.ipynb',
      'this notebook',
      'in use by alice',
      'free'
    ]);
    expect(slicesSentence(english, rows, holdings)).toBe(
      '4 slices, 4 ready, 1 in this notebook, 1 in my other notebooks, 1 held by others, 1 free'
    );
  });

  it('depends on the notebook in front', () => {
    const holdings = new Holdings(second, [front, second], proxies);
    expect(rows.map(row => holdings.of(row).owner)).toEqual(['this', 'mine', 'other', 'free']);
  });

  it('has JAX’s index only for this notebook’s slices', () => {
    const holdings = new Holdings(front, [front, second], proxies);
    expect(rows.map(row => holdings.of(row).index)).toEqual([null, 0, null, null]);
  });

  it('does not report a slice as free that a session lost', () => {
    const lost = { ...front, slices: [{ number: 1, index: 0, up: false }] };
    const down = numbered(1, { health: 'down' });
    expect(new Holdings(lost, [lost], []).of(down)).toMatchObject({ owner: 'this', lost: true, index: 0 });
    expect(new Holdings(second, [lost, second], proxies).of(down)).toMatchObject({
      owner: 'mine',
      lost: true,
      index: null
    });
    expect(slicesSentence(english, [{ ...down, health: 'ready' }], new Holdings(lost, [lost], []))).toBe(
      '1 slice, 1 ready, 1 in this notebook, 0 free'
    );
  });

  it('calls a slice that cannot run neither ready nor free, and says who waits for it', () => {
    const holdings = new Holdings(front, [front, second], proxies);
    const unschedulable = numbered(3, { health: 'starting' });
    expect(sliceSentence(english, unschedulable, holdings.of(unschedulable))).toBe('Slice 3 (tpuv6e:2x2): starting');
    const down = numbered(1, { health: 'down', holder: holder('front', 'me', true) });
    expect(sliceSentence(english, down, holdings.of(down))).toBe('Slice 1 (your 0) (tpuv6e:2x2): down, this notebook');
    expect(slicesSentence(english, [unschedulable, down], holdings)).toBe(
      '2 slices, 0 ready, 1 starting, 1 down, 1 in this notebook, 0 free'
    );
  });

  it('calls no slice free while it is not known who holds which', () => {
    const unsure = [numbered(0, { availability: 'ready' }), numbered(1, { availability: 'ready' }), numbered(2)];
    const holdings = new Holdings(null, [], proxies);
    expect(unsure.map(row => holdings.of(row).owner)).toEqual(['unknown', 'unknown', 'free']);
    expect(slicesSentence(english, unsure, holdings)).toBe('3 slices, 3 ready, holders of 2 not known');
    expect(sliceSentence(english, unsure[0], holdings.of(unsure[0]))).toBe('Slice 0 (tpuv6e:2x2): ready');
  });

  it('has no other notebooks where none is in front', () => {
    const holdings = new Holdings(null, [front, second], proxies, false);
    expect(slicesSentence(english, rows, holdings)).toContain('2 in my notebooks, 1 held by others, 1 free');
  });

  it('ignores a session on another cluster whose slice has the same name', () => {
    const elsewhere = session({ id: 'elsewhere', slices: [{ number: 3, index: 0, up: false }] });
    expect(new Holdings(front, [front, elsewhere], proxies).of(rows[3]).owner).toBe('free');
  });

  it('assigns a slice that another session has taken meanwhile to that session', () => {
    const lost = { ...front, slices: [{ number: 2, index: 0, up: false }] };
    expect(new Holdings(lost, [lost], proxies).of(rows[2])).toMatchObject({ owner: 'other', lost: false, index: null });
  });

  it('uses a notebook’s present name, else its name at the time of connecting', () => {
    const row = numbered(0, { holder: holder('second', 'me', true, 'old.ipynb') });
    expect(new Holdings(front, [front, second], proxies).of(row).holder).toBe('work/train.ipynb');
    expect(new Holdings(front, [front], proxies).of(row).holder).toBe('old.ipynb');
  });

  it('says which slices are only kept for a silent session, and for how long', () => {
    const silence = { silent_since: 60, kept_until: 900 };
    const kept = {
      ...rows[2],
      availability: 'reclaimable' as const,
      holder: { ...holder('third', 'alice', false), reclaimable: silence }
    };
    const holdings = new Holdings(front, [front, second], proxies);
    expect(holdingWord(english, holdings.of(kept))).toBe('alice (reclaimable)');
    expect(sliceSentence(english, kept, holdings.of(kept))).toBe('Slice 2 (tpuv6e:2x2): reclaimable, alice');
    expect(slicesSentence(english, [kept, rows[3]], holdings)).toBe(
      '2 slices, 2 ready, 1 held by others, 1 reclaimable, 1 free'
    );
    expect(silenceSentence(english, silence, 180).replace(/\u00a0/g, ' ')).toBe(
      'silent for 2 min 0 s, kept for 12 min unless its slices are needed'
    );
    expect(silenceSentence(english, silence, 960).replace(/\u00a0/g, ' ')).toBe('silent for 15 min');
    expect(sameHolding(holdings.of(kept), holdings.of(rows[2]))).toBe(false);
  });

  it('renders again when a slice’s holder changes', () => {
    const one = new Holdings(front, [front, second], proxies);
    const other = new Holdings(second, [front, second], proxies);
    expect(sameHolding(one.of(rows[0]), one.of(rows[0]))).toBe(true);
    expect(sameHolding(one.of(rows[0]), other.of(rows[0]))).toBe(false);
  });
});

describe('sliceName', () => {
  it('is the service’s number, with JAX’s beside it where that differs', () => {
    expect(sliceName(english, 1, 0)).toBe('slice 1 (your 0)');
    expect(sliceName(english, 1, 1)).toBe('slice 1');
    expect(sliceName(english, 1, null)).toBe('slice 1');
    expect(sliceName(english, null, 2)).toBe('your slice 2');
  });
});
