/** PathwaysJobs with their actions; other JobSets with their state. */
import * as React from 'react';

import { canConnect, JobAction, listed, pauseAction } from '../models/joblist';
import { ITrans } from '../models/trans';
import { age } from '../models/words';
import { IJob } from '../models/wire';
import { IActions, ISectionBodyProps } from './actions';
import { LinkButton } from './Button';
import { Rows } from './ClusterState';
import { useModel, useNow } from './hooks';
import { Toned } from './Toned';

export function JobsSection({ model, actions, trans }: ISectionBodyProps): React.JSX.Element {
  useModel(model, 'cluster', 'link');
  const jobs = model.cluster ? listed(model.cluster) : [];
  return (
    <Rows model={model} trans={trans} empty={null}>
      <ul className="pw-list" aria-label={trans.__('Jobs')}>
        {jobs.map(job => (
          <Job key={job.id} job={job} usable={model.live} actions={actions} trans={trans} />
        ))}
      </ul>
    </Rows>
  );
}

function Job(props: { job: IJob; usable: boolean; actions: IActions; trans: ITrans }): React.JSX.Element {
  const { job, usable, actions, trans } = props;
  const now = useNow();
  return (
    <li data-job={job.name}>
      <div className="pw-head">
        <b>{job.name}</b>
        <Toned tone={job.tone}>{job.state}</Toned>
      </div>
      <div className="pw-muted">
        {[job.kind, age(trans, job.created, now), job.queue && trans.__('queue %1', job.queue), job.message]
          .filter(Boolean)
          .join(' · ')}
      </div>
      {job.runnable && usable && <Actions job={job} actions={actions} trans={trans} />}
    </li>
  );
}

function Actions({ job, actions, trans }: { job: IJob; actions: IActions; trans: ITrans }): React.JSX.Element {
  const pause = pauseAction(job);
  const act = (action: JobAction) => () => actions.actOnJob(job, action);
  const links: readonly (readonly [boolean, string, string, () => void])[] = [
    [
      canConnect(job),
      trans.__('Connect'),
      trans.__('Connect this notebook to job %1', job.name),
      () => actions.connectJob(job)
    ],
    [true, trans.__('Details'), trans.__('Details of job %1', job.name), () => actions.showJob(job)],
    [true, trans.__('Log'), trans.__('Log of job %1', job.name), () => actions.openJobLog(job)],
    [pause === 'suspend', trans.__('Suspend'), trans.__('Suspend job %1', job.name), act('suspend')],
    [pause === 'resume', trans.__('Resume'), trans.__('Resume job %1', job.name), act('resume')],
    [job.state !== 'Ending', trans.__('Delete'), trans.__('Delete job %1', job.name), act('delete')]
  ];
  return (
    <div className="pw-links" role="group" aria-label={trans.__('Actions on job %1', job.name)}>
      {links.map(([can, label, name, run]) => can && <LinkButton key={label} label={label} name={name} run={run} />)}
    </div>
  );
}
