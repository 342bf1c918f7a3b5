/** An elastic training run: when it began, its slices and first metric over time, how well it uses its time; and the others. */
import * as React from 'react';

import { curvePath, goodputWords, otherRuns, progressWords, slicesPath, slicesWords } from '../models/training';
import { ITrans } from '../models/trans';
import { IElasticRun } from '../models/sessionrows';
import { clock, sentence } from '../models/words';
import { useNow } from './hooks';
import { Toned } from './Toned';

const WIDTH = 200;
const HEIGHT = 28;

export function Training({ run, trans }: { run: IElasticRun; trans: ITrans }): React.JSX.Element {
  const now = useNow();
  const slices = slicesPath(run, now, WIDTH, HEIGHT);
  const curve = curvePath(run, WIDTH, HEIGHT);
  const others = otherRuns(run);
  return (
    <section className="pw-training" aria-label={trans.__('Training')} data-phase={run.phase}>
      <div className="pw-head">
        <h3>
          {run.name || trans.__('Training')} <span className="pw-muted">{clock(run.begun)}</span>
        </h3>
        <Toned tone={run.tone}>{sentence(run.phase)}</Toned>
      </div>
      <p>{progressWords(trans, run)}</p>
      {slices && <Chart name={trans.__('Slices')} label={slicesWords(trans, run)} path={slices} />}
      {curve && <Chart name={run.curve.metric} label={trans.__('%1 over the steps', run.curve.metric)} path={curve} />}
      <label className="pw-goodput">
        <span>{goodputWords(trans, run)}</span>
        <meter min={0} max={1} value={run.goodput} />
      </label>
      {others.length > 0 && (
        <details className="pw-fold">
          <summary>{trans._n('%1 other run', '%1 other runs', others.length)}</summary>
          <ul className="pw-list" aria-label={trans.__('Other runs of this session')}>
            {others.map(other => (
              <li key={other.run}>
                <div className="pw-head">
                  <b>{other.name || trans.__('Training')}</b>
                  <Toned tone={other.tone}>{sentence(other.phase)}</Toned>
                </div>
                <span className="pw-muted">
                  {[clock(other.begun), other.progress, goodputWords(trans, other)].filter(Boolean).join(' · ')}
                </span>
              </li>
            ))}
          </ul>
        </details>
      )}
    </section>
  );
}

function Chart({ name, label, path }: { name: string; label: string; path: string }): React.JSX.Element {
  return (
    <div className="pw-chart">
      <span className="pw-muted">{name}</span>
      <svg
        role="img"
        aria-label={label}
        viewBox={`-1 -2 ${WIDTH + 2} ${HEIGHT + 4}`}
        preserveAspectRatio="none"
        height={HEIGHT + 4}
      >
        <path d={path} vectorEffect="non-scaling-stroke" />
      </svg>
    </div>
  );
}
