/** One job in a tab: what it is, its pods, and the latest events. */
import * as React from 'react';

import { Api } from '../models/api';
import { asProblem, Problem } from '../models/problem';
import { isOver } from '../models/joblist';
import { ITrans } from '../models/trans';
import { clock } from '../models/words';
import { IScope } from '../models/scope';
import { IJobPicture } from '../models/wire';
import { LinkButton } from './Button';
import { Notice } from './Notice';
import { Toned } from './Toned';

/** Time between two requests while the tab is visible and the job is not over. */
const REFRESH_MILLISECONDS = 3000;

export interface IJobViewProps {
  readonly api: Api;
  readonly scope: IScope;
  readonly job: string;
  readonly trans: ITrans;
  readonly openLog: (pod: string, title: string) => void;
  readonly isVisible: () => boolean;
}

export function JobView({ api, scope, job, trans, openLog, isVisible }: IJobViewProps): React.JSX.Element {
  const { picture, problem } = usePicture(api, scope, job, trans, isVisible);
  return (
    <div className="pw-job">
      {problem && <Notice tone="fail" title={problem.message} hint={problem.hint} />}
      {!picture && !problem && <Notice title={trans.__('Loading from the cluster…')} />}
      {picture && (
        <div className={problem ? 'pw-stale' : ''}>
          <Picture picture={picture} trans={trans} openLog={openLog} />
        </div>
      )}
    </div>
  );
}

function Picture(props: { picture: IJobPicture } & Pick<IJobViewProps, 'trans' | 'openLog'>): React.JSX.Element {
  const { picture, trans, openLog } = props;
  const { job, pods, events } = picture;
  return (
    <>
      <h2>{job.name}</h2>
      <p role="status">
        <Toned tone={job.tone}>{job.state}</Toned>
        {job.reason && <span className="pw-muted"> {job.reason}</span>}
      </p>
      <dl className="pw-facts">
        <dt>{trans.__('Slices')}</dt>
        <dd>{`${job.slices} × ${job.instance_type}`}</dd>
        <dt>{trans.__('Restarts')}</dt>
        <dd>{job.restarts}</dd>
        {job.queue && (
          <>
            <dt>{trans.__('Queue')}</dt>
            <dd>{job.queue}</dd>
          </>
        )}
        <dt>{trans.__('Kind')}</dt>
        <dd>{job.kind}</dd>
      </dl>
      <h3>{trans.__('Pods')}</h3>
      {pods.length === 0 && <p className="pw-muted">{trans.__('It has no pods now.')}</p>}
      <ul className="pw-list" aria-label={trans.__('Pods')}>
        {pods.map(pod => (
          <li key={pod.name}>
            <div className="pw-head">
              <b>{pod.role}</b>
              <span>{pod.state}</span>
            </div>
            <div className="pw-details">
              <span className="pw-muted">
                {[pod.name, pod.node, pod.restarts > 0 && trans._n('%1 restart', '%1 restarts', pod.restarts)]
                  .filter(Boolean)
                  .join(' · ')}
              </span>
              <LinkButton
                label={trans.__('Log')}
                name={trans.__('Log of pod %1', pod.name)}
                run={() => openLog(pod.name, pod.role)}
              />
            </div>
          </li>
        ))}
      </ul>
      <h3>{trans.__('Events')}</h3>
      {events.length === 0 && <p className="pw-muted">{trans.__('No events.')}</p>}
      <ul className="pw-list" aria-label={trans.__('Events')}>
        {events.map((event, index) => (
          <li key={index}>
            <time className="pw-muted">{clock(event.time)}</time>{' '}
            <Toned tone={event.warning ? 'warn' : 'none'}>{event.reason}</Toned> {event.message}{' '}
            <span className="pw-muted">{event.about}</span>
          </li>
        ))}
      </ul>
    </>
  );
}

/** The job, requested again while it can change and its tab is visible. */
function usePicture(api: Api, scope: IScope, job: string, trans: ITrans, isVisible: () => boolean) {
  const [said, setSaid] = React.useState<{ picture: IJobPicture | null; problem: Problem | null }>({
    picture: null,
    problem: null
  });
  React.useEffect(() => {
    let wanted = true;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const ask = async () => {
      let over = false;
      if (isVisible()) {
        try {
          const picture = await api.job(scope, job);
          over = isOver(picture.job.state);
          if (wanted) {
            setSaid({ picture, problem: null });
          }
        } catch (error) {
          if (wanted) {
            setSaid(before => ({ ...before, problem: asProblem(error, trans) }));
          }
        }
      }
      if (wanted && !over) {
        timer = setTimeout(() => void ask(), REFRESH_MILLISECONDS);
      }
    };
    void ask();
    return () => {
      wanted = false;
      clearTimeout(timer);
    };
  }, [api, scope, job, trans, isVisible]);
  return said;
}
