/** PathwaysJobs with their actions; other JobSets with their state. */
import * as React from 'react';

import { canConnect, JobAction, listed, pauseAction } from '../models/joblist';
import { Model } from '../models/model';
import { ITrans } from '../models/trans';
import { age, JOB_TONES, jobStateWord } from '../models/words';
import { IJob } from '../models/wire';
import { IActions } from './actions';
import { LinkButton } from './Button';
import { Rows } from './ClusterState';
import { useModel, useNow } from './hooks';
import { Toned } from './Toned';

export function JobsSection(props: { model: Model; actions: IActions; trans: ITrans }): React.JSX.Element {
  const { model, actions, trans } = props;
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
        <Toned tone={JOB_TONES[job.state] ?? 'none'}>{jobStateWord(trans, job.state)}</Toned>
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
  return (
    <div className="pw-links" role="group" aria-label={trans.__('Actions on job %1', job.name)}>
      {canConnect(job) && (
        <LinkButton
          label={trans.__('Connect')}
          name={trans.__('Connect this notebook to job %1', job.name)}
          run={() => actions.connectJob(job)}
        />
      )}
      <LinkButton
        label={trans.__('Details')}
        name={trans.__('Details of job %1', job.name)}
        run={() => actions.showJob(job)}
      />
      <LinkButton
        label={trans.__('Log')}
        name={trans.__('Log of job %1', job.name)}
        run={() => actions.openJobLog(job)}
      />
      {pause === 'suspend' && (
        <LinkButton label={trans.__('Suspend')} name={trans.__('Suspend job %1', job.name)} run={act('suspend')} />
      )}
      {pause === 'resume' && (
        <LinkButton label={trans.__('Resume')} name={trans.__('Resume job %1', job.name)} run={act('resume')} />
      )}
      {job.state !== 'Ending' && (
        <LinkButton label={trans.__('Delete')} name={trans.__('Delete job %1', job.name)} run={act('delete')} />
      )}
    </div>
  );
}
