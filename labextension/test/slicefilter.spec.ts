import { Holdings } from '../src/models/holdings';
import { filtered } from '../src/models/slicefilter';
import { english } from '../src/models/trans';
import { numbered, session } from './rows';

const holder = (id: string, user: string, mine: boolean) => ({
  session: id,
  user,
  notebook: mine ? 'work/Train.ipynb' : '',
  since: 3,
  mine,
  reclaimable: user === 'bob' ? { silent_since: 60, kept_until: 900 } : null
});

const front = session({ id: 'front', slices: [{ number: 1, index: 0, up: false }] });
const rows = [
  numbered(0, { holder: holder('second', 'me', true) }),
  numbered(1, { holder: holder('front', 'me', true), health: 'down' }),
  numbered(2, { holder: holder('third', 'Alice', false), health: 'down' }),
  numbered(3, { holder: holder('fourth', 'bob', false) }),
  numbered(4, { health: 'starting' }),
  numbered(12)
];
const holdings = new Holdings(front, [front], []);

describe('filtered', () => {
  it.each([
    ['', [0, 1, 2, 3, 4, 12]],
    ['  ', [0, 1, 2, 3, 4, 12]],
    ['1', [1]],
    ['1 12', [1, 12]],
    ['2-4', [2, 3, 4]],
    ['mine', [0, 1]],
    ['this', [1]],
    ['others', [2, 3]],
    ['free', [12]],
    ['fr', [12]],
    ['down', [1, 2]],
    ['DOWN, starting', [1, 2, 4]],
    ['lost', [1]],
    ['reclaimable', [3]],
    ['alice', [2]],
    ['alice bob', [2, 3]],
    ['train', [0]],
    ['mine down', [1]],
    ['free 0-4', []],
    ['carol', []],
    ['99', []]
  ])('%j leaves %j', (text, left) => {
    expect(filtered(text, rows, holdings, english).map(row => row.number)).toEqual(left);
  });

  it('returns the same list without a filter, so that nothing is drawn again', () => {
    expect(filtered('', rows, holdings, english)).toBe(rows);
  });
});
