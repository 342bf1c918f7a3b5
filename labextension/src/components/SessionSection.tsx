/** The session of the notebook in front. */
import * as React from 'react';

import { baseName } from '../models/holdings';
import { freeSlices, noneFree, suggestion } from '../models/line';
import { ITrans } from '../models/trans';
import { age, clock } from '../models/words';
import { ISession, SessionCommand } from '../models/sessionrows';
import { acts, isOffered, verdictSentence } from '../models/sessions';
import { isUnused } from '../models/unused';
import { IService } from '../models/wire';
import { IActions, ISectionBodyProps } from './actions';
import { Button } from './Button';
import { DragLine } from './DragLine';
import { useModel, useNow } from './hooks';
import { Notice } from './Notice';
import { Toned } from './Toned';

export function SessionSection(props: ISectionBodyProps): React.JSX.Element {
  const { model, trans } = props;
  useModel(model, 'sessions', 'front', 'cluster', 'link');
  const { front, place } = model;
  if (!front || !place) {
    return <OfNotebook {...props} />;
  }
  return (
    <>
      {place.ready ? (
        <p className="pw-muted">
          {trans.__('Its kernel runs beside the chips, in %1.', place.cluster)} {place.note}
        </p>
      ) : (
        <Notice
          tone={place.failed ? 'fail' : 'wait'}
          title={
            place.failed
              ? trans.__('The kernel of %1 beside the chips has ended.', baseName(front.path))
              : trans.__('The kernel of %1 starts beside the chips.', baseName(front.path))
          }
          hint={place.message}
        />
      )}
      {place.ready && place.message && <Notice tone="wait" title={place.message} />}
      {place.ready && <OfNotebook {...props} />}
    </>
  );
}

function OfNotebook({ model, actions, trans }: ISectionBodyProps): React.JSX.Element {
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
  const cluster = model.live ? model.cluster : null;
  const choice = cluster?.named ? suggestion(cluster.named, cluster.rows('services'), model.place?.cluster) : null;
  const wait = noneFree(cluster?.rows('services') ?? []);
  const held = wait && !!cluster?.rows('proxies').length;
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
  const free = session.state === 'suspended' ? freeSlices(session, services) : null;
  const few = free && free.free < free.wanted ? free : null;
  const resume = (label: string, how?: { wait?: boolean; slices?: number }, primary = false) => ({
    label,
    primary,
    run: () => actions.resume(session, how)
  });
  const resumes = !few
    ? [resume(trans.__('Resume'), undefined, true)]
    : [
        resume(trans.__('Resume when free'), { wait: true }, true),
        ...(few.free
          ? [resume(trans._n('Resume on %1 slice', 'Resume on %1 slices', few.free), { slices: few.free })]
          : [])
      ];
  const keep = { label: trans.__('Keep'), primary: session.suspends_at > 0, run: () => actions.keep(session) };
  return (
    <div className={`pw-session${stale ? ' pw-stale' : ''}`} data-state={session.state}>
      <p role="status">
        <Toned tone={stale ? 'none' : session.tone}>{session.word}</Toned>
        <span className="pw-muted">
          {' '}
          {stale
            ? trans.__('at %1', clock(staleSince))
            : !session.silent && trans.__('for %1', age(trans, session.state_since, now))}
        </span>
      </p>
      <Buttons session={session} actions={actions} trans={trans} />
      {!stale && session.advice && (
        <Notice
          tone={session.tone === 'ok' ? 'wait' : session.tone}
          title={session.advice}
          hint={
            few
              ? trans._n(
                  '%1 of the %2 slices that it had is free.',
                  '%1 of the %2 slices that it had are free.',
                  few.free,
                  few.wanted
                )
              : undefined
          }
          actions={session.saved && acts(session, 'resume') ? resumes : isUnused(session) ? [keep] : []}
        />
      )}
      <dl className="pw-facts">
        {session.facts.map(([name, value]) => (
          <React.Fragment key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </React.Fragment>
        ))}
      </dl>
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
