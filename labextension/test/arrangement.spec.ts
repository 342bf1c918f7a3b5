import { arrangement } from '../src/models/arrangement';

describe('arrangement', () => {
  it('takes what was saved', () => {
    const saved = { folded: ['jobs'], sizes: [0.5, 0.5, 0] };
    expect(arrangement(saved, 3)).toEqual(saved);
  });

  it.each([undefined, null, [], { folded: [], sizes: [1] }, { folded: 'jobs', sizes: [1, 0, 0] }])(
    'takes nothing else: %j',
    saved => {
      expect(arrangement(saved, 3)).toBe(null);
    }
  );

  it('takes no sizes that cannot be drawn', () => {
    expect(arrangement({ folded: [], sizes: [1, null, 0] }, 3)).toBe(null);
    expect(arrangement({ folded: [], sizes: [1, -1, 0] }, 3)).toBe(null);
  });
});
