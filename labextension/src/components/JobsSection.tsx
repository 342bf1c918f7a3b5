/** PathwaysJobs, JobSets and proxy Jobs, with their state. */
import * as React from 'react';

import { Model } from '../models/model';
import { ITrans } from '../models/trans';
import { age, Tone } from '../models/words';
import { Rows } from './ClusterState';
import { useModel, useNow } from './hooks';
import { Toned } from './Toned';

const TONES: { readonly [state: string]: Tone } = {
  Running: 'ok',
  Completed: 'ok',
  Pending: 'wait',
  Suspended: 'wait',
  Failed: 'fail'
};

export function JobsSection({ model, trans }: { model: Model; trans: ITrans }): React.JSX.Element {
  useModel(model, 'cluster', 'link');
  const now = useNow();
  const jobs = model.cluster?.rows('jobs') ?? [];
  return (
    <Rows model={model} trans={trans} empty={jobs.length ? null : trans.__('There are no jobs here.')}>
      <ul className="pw-list" aria-label={trans.__('Jobs')}>
        {jobs.map(job => (
          <li key={job.id}>
            <div className="pw-head">
              <b>{job.name}</b>
              <Toned tone={TONES[job.state] ?? 'none'}>{job.state}</Toned>
            </div>
            <div className="pw-muted">
              {[job.kind, age(trans, job.created, now), job.message].filter(Boolean).join(' · ')}
            </div>
          </li>
        ))}
      </ul>
    </Rows>
  );
}
