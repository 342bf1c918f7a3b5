import { english } from '../src/models/trans';
import {
  curvePath,
  goodputWords,
  otherRuns,
  progressWords,
  slicesPath,
  slicesWords,
  stepWords
} from '../src/models/training';

import { run } from './rows';

describe('a training run', () => {
  it('is described in one line', () => {
    expect(progressWords(english, run())).toBe('Step 120 of 500 · 2 of 3 slices · loss 0.125');
    expect(progressWords(english, run({ steps: null, metrics: { loss: null } }))).toBe('Step 120 · 2 of 3 slices');
    expect(progressWords(english, run({ step: 0, steps: null, metrics: {} }))).toBe('2 of 3 slices');
    // While the step is compiled, it uses no slice yet, and has lost none.
    const first = run({ step: 0, slices: 0, changes: [], metrics: {} });
    expect(progressWords(english, first)).toBe('Step 0 of 500 · no step is complete yet');
    expect(goodputWords(english, run())).toBe('Goodput 92 %, 1 loss');
    expect(goodputWords(english, run({ losses: 0 }))).toBe('Goodput 92 %');
    expect(slicesWords(english, run())).toBe('Slices over time: 3, 2');
  });

  it('lists the other runs of its session, newest first', () => {
    const short = run({ run: 'short', name: 'warm_up', steps: null, step: 1 });
    const failed = run({ run: 'failed', steps: 500 });
    expect(otherRuns(run({ runs: [failed, run(), short] })).map(each => each.run)).toEqual(['short', 'failed']);
    expect([short, failed, run({ step: 0, steps: null })].map(each => stepWords(english, each))).toEqual([
      'Step 1',
      'Step 120 of 500',
      ''
    ]);
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
