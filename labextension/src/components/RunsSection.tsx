/** The runs on many hosts: one row a run, which unfolds to its hosts. */
import * as React from 'react';

import { canRefresh, canStop, elapsed, hostsWords, hostTone, hostWord, runTone, runWord } from '../models/hostsruns';
import { Model } from '../models/model';
import { ITrans } from '../models/trans';
import { age, clock } from '../models/words';
import { IHostsRun, IRunHost } from '../models/wire';
import { IActions } from './actions';
import { LinkButton } from './Button';
import { useModel, useNow } from './hooks';
import { Toned } from './Toned';

export function RunsSection(props: { model: Model; actions: IActions; trans: ITrans }): React.JSX.Element {
  const { model, actions, trans } = props;
  useModel(model, 'runs', 'link');
  return (
    <ul className={`pw-list${model.linked ? '' : ' pw-stale'}`} aria-label={trans.__('Runs on many hosts')}>
      {model.hostsRuns.map(run => (
        <Run key={run.id} run={run} usable={model.linked} actions={actions} trans={trans} />
      ))}
    </ul>
  );
}

interface IRunProps {
  readonly run: IHostsRun;
  readonly usable: boolean;
  readonly actions: IActions;
  readonly trans: ITrans;
}

const Run = React.memo(function Run({ run, usable, actions, trans }: IRunProps): React.JSX.Element {
  const now = useNow();
  const [open, setOpen] = React.useState(false);
  return (
    <li data-run={run.name} data-state={run.state}>
      <div className="pw-head">
        <b>{run.name}</b>
        <Toned tone={runTone(run)}>{runWord(trans, run)}</Toned>
      </div>
      <code className="pw-command" title={run.command}>
        {run.command}
      </code>
      <details className="pw-fold" onToggle={event => setOpen(event.currentTarget.open)}>
        <summary className="pw-muted">
          {hostsWords(trans, run)} · {age(trans, run.started, now)}
        </summary>
        {open && (
          <ul className="pw-list" aria-label={trans.__('Hosts of run %1', run.name)}>
            {run.hosts.map(host => (
              <Host key={host.label} run={run} host={host} now={now} actions={actions} trans={trans} />
            ))}
          </ul>
        )}
      </details>
      {canRefresh(run) && run.at > 0 && <div className="pw-muted">{trans.__('As of %1', clock(run.at))}</div>}
      {usable && (canStop(run) || canRefresh(run)) && (
        <div className="pw-links" role="group" aria-label={trans.__('Actions on run %1', run.name)}>
          {canRefresh(run) && (
            <LinkButton
              label={trans.__('Ask the hosts')}
              name={trans.__('Ask the hosts of run %1', run.name)}
              run={() => actions.actOnRun(run, 'refresh')}
            />
          )}
          {canStop(run) && (
            <LinkButton
              label={trans.__('Stop')}
              name={trans.__('Stop run %1', run.name)}
              run={() => actions.actOnRun(run, 'stop')}
            />
          )}
        </div>
      )}
    </li>
  );
});

interface IHostProps extends Omit<IRunProps, 'usable'> {
  readonly host: IRunHost;
  readonly now: number;
}

function Host({ run, host, now, actions, trans }: IHostProps): React.JSX.Element {
  const said = host.message ? `${host.message} ${host.hint}`.trim() : host.last_line;
  return (
    <li data-host={host.label}>
      <div className="pw-head">
        <b title={host.name}>{host.label}</b>
        <Toned tone={hostTone(host)}>{hostWord(trans, host)}</Toned>
      </div>
      <div className="pw-details">
        <span className="pw-muted">{[host.name, elapsed(trans, run, host, now)].filter(Boolean).join(' · ')}</span>
        <LinkButton
          label={trans.__('Log')}
          name={trans.__('Log of host %1 of run %2', host.label, run.name)}
          run={() => actions.openRunLog(run, host)}
        />
      </div>
      {said && (
        <div className={host.message ? 'pw-muted' : 'pw-last'} title={said}>
          {said}
        </div>
      )}
    </li>
  );
}
