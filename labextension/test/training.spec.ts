import { english } from '../src/models/trans';
import { curvePath, goodputWords, otherRuns, progressWords, slicesPath, slicesWords } from '../src/models/training';

import { run } from './rows';

describe('a training run', () => {
  it('is described in one line', () => {
    expect(progressWords(english, run())).toBe('120 of 500 steps · 2 of 3 slices · loss 0.125');
    expect(progressWords(english, run({ progress: '', metrics: { loss: null } }))).toBe('2 of 3 slices');
    // While the step is compiled, it uses no slice yet, and has lost none.
    const first = run({ progress: '0 of 500 steps', slices: 0, changes: [], metrics: {} });
    expect(progressWords(english, first)).toBe('0 of 500 steps · no step is complete yet');
    expect(goodputWords(english, run())).toBe('Goodput 92 %, 1 loss');
    expect(goodputWords(english, run({ losses: 0 }))).toBe('Goodput 92 %');
    expect(slicesWords(english, run())).toBe('Slices over time: 3, 2');
  });

  it('lists the other runs of its session, newest first', () => {
    const short = run({ run: 'short', name: 'warm_up' });
    const failed = run({ run: 'failed' });
    expect(otherRuns(run({ runs: [failed, run(), short] })).map(each => each.run)).toEqual(['short', 'failed']);
    // An older version sends no list.
    expect(otherRuns(run())).toEqual([]);
  });

  it('shows its slices over time, up to now while it goes on', () => {
    expect(slicesPath(run(), 140, 100, 30)).toBe('M0 0H50V10H100');
    expect(slicesPath(run({ ended: 200 }), 140, 100, 30)).toBe('M0 0H20V10H100');
    expect(slicesPath(run({ changes: [] }), 140, 100, 30)).toBe('');
  });

  it('shows a metric over the steps, with a gap where it is not finite', () => {
    const points = [
      [0, 4],
      [10, 2],
      [20, null],
      [30, 0],
      [40, 1]
    ] as const;
    expect(curvePath(run({ curve: { metric: 'loss', points } }), 80, 40)).toBe('M0 0L20 20M60 40L80 30');
    expect(curvePath(run({ curve: { metric: 'loss', points: [[0, 4]] } }), 80, 40)).toBe('');
  });
});
