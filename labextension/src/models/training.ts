/** An elastic training run in words and lines. */
import { ITrans } from './trans';
import { IElasticRun, IRunSummary } from './sessionrows';

/** The other runs of a run's kernel, newest first. */
export function otherRuns(run: IElasticRun): readonly IRunSummary[] {
  return (run.runs ?? []).filter(each => each.run !== run.run).reverse();
}

/** "120 of 500 steps · 2 of 3 slices · loss 0.125" */
export function progressWords(trans: ITrans, run: IElasticRun): string {
  const value = run.metrics[run.curve.metric];
  return [
    run.progress,
    // Before its first step it has not used any slice, as if it had lost them all.
    run.changes.length ? trans.__('%1 of %2 slices', run.slices, run.total) : trans.__('no step is complete yet'),
    typeof value === 'number' && `${run.curve.metric} ${Number(value.toPrecision(4))}`
  ]
    .filter(Boolean)
    .join(' · ');
}

/** "Goodput 92 %, 2 losses" */
export function goodputWords(trans: ITrans, run: IRunSummary): string {
  const share = trans.__('Goodput %1 %', Math.round(run.goodput * 100));
  return run.losses ? trans.__('%1, %2', share, trans._n('%1 loss', '%1 losses', run.losses)) : share;
}

/** The slices over time in one sentence, for screen readers. */
export function slicesWords(trans: ITrans, run: IElasticRun): string {
  return trans.__('Slices over time: %1', run.changes.map(([, slices]) => slices).join(', '));
}

/**
 * The number of slices over time as an SVG path of steps, from the left edge to the right one.
 *
 * @param now The right edge while the run goes on, in seconds since the epoch.
 */
export function slicesPath(run: IElasticRun, now: number, width: number, height: number): string {
  const end = run.ended ?? Math.max(now, ...run.changes.map(([at]) => at));
  const span = Math.max(end - run.begun, 0.001);
  const most = Math.max(run.total, 1, ...run.changes.map(([, slices]) => slices));
  const x = (at: number) => rounded((width * Math.min(Math.max(at - run.begun, 0), span)) / span);
  const y = (slices: number) => rounded(height * (1 - slices / most));
  let path = '';
  for (const [at, slices] of run.changes) {
    path += path ? `H${x(at)}V${y(slices)}` : `M0 ${y(slices)}`;
  }
  return path && `${path}H${width}`;
}

/** A metric over the steps as an SVG path; interrupted where a value is not finite. */
export function curvePath(run: IElasticRun, width: number, height: number): string {
  const points = run.curve.points.filter((point): point is readonly [number, number] => point[1] !== null);
  if (points.length < 2) {
    return '';
  }
  const first = run.curve.points[0][0];
  const span = Math.max(run.curve.points[run.curve.points.length - 1][0] - first, 1);
  const values = points.map(([, value]) => value);
  const low = Math.min(...values);
  const range = Math.max(...values) - low || 1;
  let path = '';
  let pen = 'M';
  for (const [step, value] of run.curve.points) {
    if (value === null) {
      pen = 'M';
      continue;
    }
    path += `${pen}${rounded((width * (step - first)) / span)} ${rounded(height * (1 - (value - low) / range))}`;
    pen = 'L';
  }
  return path;
}

function rounded(value: number): number {
  return Math.round(value * 10) / 10;
}
