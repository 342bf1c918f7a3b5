/** The session of the notebook in front. */
import * as React from 'react';

import { suggestion } from '../models/line';
import { Model } from '../models/model';
import { baseName } from '../models/notices';
import { ITrans } from '../models/trans';
import { age, instancesWord, stateWord, TONES } from '../models/words';
import { ISession } from '../models/wire';
import { IActions } from './actions';
import { DragLine } from './DragLine';
import { useModel, useNow } from './hooks';
import { Notice } from './Notice';
import { Toned } from './Toned';

export function SessionSection(props: { model: Model; actions: IActions; trans: ITrans }): JSX.Element {
  const { model, actions, trans } = props;
  useModel(model, 'sessions', 'front', 'cluster');
  const session = model.session;
  if (session) {
    return <Session session={session} actions={actions} trans={trans} />;
  }
  if (!model.front) {
    return (
      <Notice
        title={trans.__('No notebook is in front.')}
        hint={trans.__('Open a notebook to connect it to TPUs, or see “Services & proxies” for what runs.')}
      />
    );
  }
  const choice = model.cluster?.named && suggestion(model.cluster.named, model.cluster.rows('services'));
  return (
    <>
      <Notice
        title={trans.__('%1 is not connected.', baseName(model.front.path))}
        hint={trans.__('Connect it to a Pathways service, and its JAX computes on TPUs.')}
        action={{ label: trans.__('Connect…'), run: () => actions.connect() }}
      />
      {choice && <DragLine choice={choice} label={trans.__('Or drag this into a cell, and run it:')} />}
    </>
  );
}

function Session(props: { session: ISession; actions: IActions; trans: ITrans }): JSX.Element {
  const { session, actions, trans } = props;
  const now = useNow(5);
  const tone = session.alive ? TONES[session.state] : 'fail';
  return (
    <div className="pw-session" data-state={session.state}>
      <p role="status">
        <Toned tone={tone}>{stateWord(trans, session)}</Toned>
        <span className="pw-muted"> {trans.__('for %1', age(trans, session.created, now))}</span>
      </p>
      <dl>
        <dt>{trans.__('Service')}</dt>
        <dd>{session.service || '–'}</dd>
        <dt>{trans.__('Slices')}</dt>
        <dd>{instancesWord(session.instances) || '–'}</dd>
        <dt>{trans.__('Devices')}</dt>
        <dd>{session.devices || '–'}</dd>
        <dt>{trans.__('Session')}</dt>
        <dd>
          <code>{session.id}</code>
        </dd>
      </dl>
      {!session.alive && (
        <p className="pw-muted">
          {trans.__('Its supervisor is gone. “Clean up” in Services & proxies removes what it left.')}
        </p>
      )}
      <div className="pw-buttons" role="group" aria-label={trans.__('Session actions')}>
        <button
          type="button"
          className="pw-button"
          disabled={!session.alive || session.state === 'closing'}
          onClick={() => actions.disconnect(session)}
        >
          {trans.__('Disconnect')}
        </button>
        <button
          type="button"
          className="pw-button"
          disabled={!session.alive || !(session.state === 'lost' || session.state === 'connected')}
          onClick={() => actions.reconnect(session)}
        >
          {trans.__('Reconnect')}
        </button>
        <button
          type="button"
          className="pw-button"
          disabled={!session.pod}
          onClick={() => actions.openLog(session.pod, trans.__('Proxy'))}
        >
          {trans.__('Logs')}
        </button>
      </div>
    </div>
  );
}
