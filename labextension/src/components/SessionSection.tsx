/** The session of the notebook in front. */
import * as React from 'react';

import { baseName } from '../models/holdings';
import { freeSlices, noneFree, suggestion } from '../models/line';
import { Model } from '../models/model';
import { ITrans } from '../models/trans';
import {
  age,
  clock,
  devicesWord,
  instancesWord,
  lostSlices,
  savedSentence,
  sentence,
  sessionTone,
  stateWord,
  suspendsSentence
} from '../models/words';
import { ISession, SessionCommand } from '../models/sessionrows';
import { acts, isOffered, verdictSentence } from '../models/sessions';
import { isUnused } from '../models/unused';
import { IService } from '../models/wire';
import { IActions } from './actions';
import { Button } from './Button';
import { DragLine } from './DragLine';
import { useModel, useNow } from './hooks';
import { Notice } from './Notice';
import { Toned } from './Toned';

export function SessionSection(props: { model: Model; actions: IActions; trans: ITrans }): React.JSX.Element {
  const { model, actions, trans } = props;
  useModel(model, 'sessions', 'front', 'cluster', 'link');
  const session = model.session;
  if (session) {
    return (
      <Session
        session={session}
        services={model.live ? (model.cluster?.rows('services') ?? []) : []}
        staleSince={model.linked ? null : model.staleSince}
        actions={actions}
        trans={trans}
      />
    );
  }
  if (!model.front) {
    return (
      <Notice
        title={trans.__('No notebook is in front.')}
        hint={trans.__('Open a notebook to connect it to TPUs. “Services & proxies” lists what is running.')}
        actions={[{ label: trans.__('Open the first notebook'), primary: true, run: () => actions.quickstart() }]}
      />
    );
  }
  if (!model.sessionsKnown) {
    return <Notice title={trans.__('Loading sessions…')} />;
  }
  if (model.connecting) {
    return (
      <Notice
        tone="wait"
        title={trans.__('A cell connects %1…', baseName(model.front.path))}
        hint={trans.__('Below the cell you see how far it is.')}
      />
    );
  }
  if (model.embeddedStarts) {
    return (
      <Notice
        tone="wait"
        title={trans.__('The embedded cluster is starting…')}
        hint={trans.__('%1 can be connected once it runs.', baseName(model.front.path))}
      />
    );
  }
  // From old rows, the line could name slices that are taken by now, or the previous cluster.
  const choice =
    model.live && model.cluster?.named ? suggestion(model.cluster.named, model.cluster.rows('services')) : null;
  const wait = model.live && noneFree(model.cluster?.rows('services') ?? []);
  const held = wait && !!model.cluster?.rows('proxies').length;
  return (
    <>
      <Notice
        title={trans.__('%1 is not connected.', baseName(model.front.path))}
        hint={
          held
            ? trans.__('No slice is free; see “Services & proxies”. You are notified when it is connected.')
            : wait
              ? trans.__('No slice is ready. You are notified when it is connected.')
              : trans.__('Connect it to a Pathways service to compute on TPUs.')
        }
        actions={[
          {
            label: wait ? trans.__('Connect when free…') : trans.__('Connect…'),
            primary: true,
            run: () => actions.connect(wait)
          }
        ]}
      />
      {choice && <DragLine choice={choice} label={trans.__('Or drag this line into a cell:')} />}
    </>
  );
}

interface ISessionProps {
  readonly session: ISession;
  /** Those in view, as they are now; empty if that is not known. */
  readonly services: readonly IService[];
  /** When the connection to the server broke, in seconds since the epoch. */
  readonly staleSince: number | null;
  readonly actions: IActions;
  readonly trans: ITrans;
}

function Session({ session, services, staleSince, actions, trans }: ISessionProps): React.JSX.Element {
  const now = useNow();
  const stale = staleSince !== null;
  const lost = session.alive && !session.silent && session.state === 'degraded' ? lostSlices(trans, session) : [];
  const free = session.state === 'suspended' ? freeSlices(session, services) : null;
  const few = free && free.free < free.wanted ? free : null;
  const resumes = few
    ? [
        { label: trans.__('Resume when free'), primary: true, run: () => actions.resume(session, { wait: true }) },
        ...(few.free
          ? [
              {
                label: trans._n('Resume on %1 slice', 'Resume on %1 slices', few.free),
                run: () => actions.resume(session, { slices: few.free })
              }
            ]
          : [])
      ]
    : [{ label: trans.__('Resume'), primary: true, run: () => actions.resume(session) }];
  return (
    <div className={`pw-session${stale ? ' pw-stale' : ''}`} data-state={session.state}>
      <p role="status">
        <Toned tone={stale ? 'none' : sessionTone(session)}>{stateWord(trans, session)}</Toned>
        <span className="pw-muted">
          {' '}
          {stale
            ? trans.__('at %1', clock(staleSince))
            : !session.silent && trans.__('for %1', age(trans, session.state_since, now))}
        </span>
      </p>
      <Buttons session={session} actions={actions} trans={trans} />
      {session.alive && session.silent && (
        <Notice
          tone="fail"
          title={trans.__('Its supervisor does not answer. Cells that use the TPUs wait for it.')}
          hint={trans.__(
            'If it was stopped, “kill -CONT %1” on the machine of the Jupyter server continues it. Restarting the kernel ends the session.',
            session.pid
          )}
        />
      )}
      {lost.length > 0 && (
        <Notice
          tone="wait"
          title={trans._n('%2 is down.', '%2 are down.', lost.length, sentence(lost.join(', ')))}
          hint={trans.__(
            'Arrays on it are lost; the other slices continue to work. It recovers when its worker is replaced.'
          )}
        />
      )}
      {session.alive && session.state === 'lost' && (
        <Notice
          tone="fail"
          title={trans.__('The proxy is gone, and all arrays on its slices with it.')}
          hint={trans.__('“Reconnect” gets a new proxy.')}
        />
      )}
      {session.alive && !stale && session.suspends_at > 0 && (
        <Notice
          tone="wait"
          title={suspendsSentence(trans, session.suspends_at, now)}
          hint={trans.__('Nothing is computed. Its arrays are saved then, and its slices freed; any cell keeps them.')}
          actions={[{ label: trans.__('Keep'), primary: true, run: () => actions.keep(session) }]}
        />
      )}
      {!stale && isUnused(session) && !session.suspends_at && (
        <Notice
          tone="wait"
          title={trans.__('Nothing was computed since %1.', clock(session.unused_since))}
          hint={trans.__('“Suspend” saves its arrays and frees its slices.')}
          actions={[{ label: trans.__('Keep'), run: () => actions.keep(session) }]}
        />
      )}
      {session.alive && session.saved && (
        <Notice
          tone="wait"
          title={savedSentence(trans, session.saved)}
          hint={
            few
              ? trans._n(
                  '%1 of the %2 slices that it had is free.',
                  '%1 of the %2 slices that it had are free.',
                  few.free,
                  few.wanted
                )
              : trans.__(
                  'After the cells that are running, “Resume” gets slices again and puts every array where it was.'
                )
          }
          actions={acts(session, 'resume') ? resumes : []}
        />
      )}
      <dl className="pw-facts">
        <dt>{session.pathways_job ? trans.__('Job') : trans.__('Service')}</dt>
        <dd>{session.pathways_job || session.service || '–'}</dd>
        <dt>{trans.__('Slices')}</dt>
        <dd>{(session.state !== 'suspended' && instancesWord(session.instances)) || '–'}</dd>
        <dt>{trans.__('Devices')}</dt>
        <dd>{devicesWord(trans, session)}</dd>
        {session.round_trip > 0 && session.state !== 'suspended' && (
          <>
            <dt>{trans.__('Distance')}</dt>
            <dd>{trans.__('%1 ms to the cluster', Math.max(1, Math.round(session.round_trip * 1000)))}</dd>
          </>
        )}
        {session.saved && (
          <>
            <dt>{trans.__('Saved in')}</dt>
            <dd>
              <code>{session.saved.place}</code>
            </dd>
          </>
        )}
        <dt>{trans.__('Session')}</dt>
        <dd>
          <code>{session.id}</code>
        </dd>
      </dl>
      {!session.alive && (
        <p className="pw-muted">
          {trans.__('Its supervisor has died. “Clean up stale proxies” in Services & proxies removes its proxy.')}
        </p>
      )}
    </div>
  );
}

function Buttons({ session, actions, trans }: Pick<ISessionProps, 'session' | 'actions' | 'trans'>): React.JSX.Element {
  // Absent where it does not apply, and disabled where it has to wait, with the reason as its title.
  const button = (command: SessionCommand, label: string, run: () => void, kind?: 'danger') =>
    isOffered(session, command) && (
      <Button
        label={label}
        kind={kind}
        disabled={!acts(session, command)}
        title={acts(session, command) ? undefined : verdictSentence(session, command)}
        run={run}
      />
    );
  // While its proxy works, a new one costs its arrays, which a question says first.
  const costs = session.verdicts.reconnect?.does === 'asks';
  return (
    <div className="pw-buttons" role="group" aria-label={trans.__('Session actions')}>
      {button('disconnect', trans.__('Disconnect'), () => actions.disconnect(session), 'danger')}
      {button('suspend', trans.__('Suspend'), () => actions.suspend(session))}
      {button(
        'reconnect',
        costs ? trans.__('Reconnect…') : trans.__('Reconnect'),
        () => actions.reconnect(session),
        costs ? 'danger' : undefined
      )}
      {button('run', trans.__('Profile'), () => actions.profile(session))}
      {session.pod && <Button label={trans.__('Logs')} run={() => actions.openLog(session.pod, trans.__('Proxy'))} />}
    </div>
  );
}
