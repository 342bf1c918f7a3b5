/** PathwaysJobs, JobSets and proxy Jobs, with their state. */
import * as React from 'react';

import { Model } from '../models/model';
import { ITrans } from '../models/trans';
import { age, Tone } from '../models/words';
import { ClusterState } from './ClusterState';
import { useModel, useNow } from './hooks';
import { Toned } from './Toned';

const TONES: { readonly [state: string]: Tone } = {
  Running: 'ok',
  Completed: 'ok',
  Pending: 'wait',
  Suspended: 'wait',
  Failed: 'fail'
};

export function JobsSection({ model, trans }: { model: Model; trans: ITrans }): JSX.Element {
  useModel(model, 'cluster');
  const now = useNow(30);
  const jobs = model.cluster?.rows('jobs') ?? [];
  if (!jobs.length) {
    return <ClusterState model={model} trans={trans} empty={trans.__('There are no jobs here.')} />;
  }
  return (
    <table className="pw-table">
      <caption className="pw-unseen">{trans.__('Jobs')}</caption>
      <thead>
        <tr>
          <th scope="col">{trans.__('Job')}</th>
          <th scope="col">{trans.__('Kind')}</th>
          <th scope="col">{trans.__('State')}</th>
          <th scope="col">{trans.__('Age')}</th>
        </tr>
      </thead>
      <tbody>
        {jobs.map(job => (
          <tr key={job.id} title={job.message}>
            <th scope="row">{job.name}</th>
            <td>{job.kind}</td>
            <td>
              <Toned tone={TONES[job.state] ?? 'none'}>{job.state}</Toned>
            </td>
            <td>{age(trans, job.created, now)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
