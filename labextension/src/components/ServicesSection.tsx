/** Services, and who holds what of them since when. */
import * as React from 'react';

import { Model } from '../models/model';
import { baseName } from '../models/notices';
import { ITrans } from '../models/trans';
import { age, HEALTH_TONES, healthWord } from '../models/words';
import { IProxy, IService } from '../models/wire';
import { IActions } from './actions';
import { ClusterState } from './ClusterState';
import { useModel, useNow } from './hooks';
import { Toned } from './Toned';

export function ServicesSection(props: { model: Model; actions: IActions; trans: ITrans }): JSX.Element {
  const { model, actions, trans } = props;
  useModel(model, 'cluster', 'sessions');
  const now = useNow(30);
  const services = model.cluster?.rows('services') ?? [];
  const proxies = model.cluster?.rows('proxies') ?? [];
  return (
    <>
      <ClusterState model={model} trans={trans} empty={services.length ? '' : trans.__('There is no Pathways service here.')} />
      <ul className="pw-list">
        {services.map(service => (
          <Service key={service.id} service={service} actions={actions} trans={trans} />
        ))}
      </ul>
      <h3>{trans.__('Proxies')}</h3>
      {proxies.length === 0 && <p className="pw-muted">{trans.__('Nobody is connected.')}</p>}
      <ul className="pw-list">
        {proxies.map(proxy => (
          <Proxy
            key={proxy.id}
            proxy={proxy}
            // A session knows what its notebook is called now; its Job, what it was called then.
            notebook={model.sessions.find(each => each.id === proxy.session)?.notebook ?? proxy.notebook}
            actions={actions}
            trans={trans}
            now={now}
          />
        ))}
      </ul>
      <div className="pw-buttons">
        <button type="button" className="pw-button" onClick={() => actions.sweep()}>
          {trans.__('Clean up stale proxies')}
        </button>
      </div>
    </>
  );
}

function Service(props: { service: IService; actions: IActions; trans: ITrans }): JSX.Element {
  const { service, actions, trans } = props;
  return (
    <li>
      <b>{service.name}</b> <Toned tone={HEALTH_TONES[service.health]}>{healthWord(trans, service.health)}</Toned>
      {service.capacity.map(capacity => (
        <div key={capacity.instance_type} className="pw-muted">
          {trans.__('%1: %2 of %3 free, %4 ready', capacity.instance_type, capacity.free, capacity.total, capacity.ready)}
        </div>
      ))}
      {service.version && <div className="pw-muted">{service.version}</div>}
      {service.pod && (
        <button
          type="button"
          className="pw-link"
          aria-label={trans.__('Log of the resource manager of %1', service.name)}
          onClick={() => actions.openLog(service.pod, service.name)}
        >
          {trans.__('Log')}
        </button>
      )}
    </li>
  );
}

function Proxy(props: { proxy: IProxy; notebook: string; actions: IActions; trans: ITrans; now: number }): JSX.Element {
  const { proxy, notebook, actions, trans, now } = props;
  const who = proxy.mine ? trans.__('%1 (you)', proxy.user) : proxy.user || trans.__('somebody');
  return (
    <li className={proxy.mine ? 'pw-is-mine' : ''}>
      <b>{who}</b> <Toned tone={HEALTH_TONES[proxy.health]}>{healthWord(trans, proxy.health)}</Toned>
      <div className="pw-muted">
        {[
          notebook && baseName(notebook),
          proxy.service,
          proxy.slices.length > 0 && trans.__('slices %1', proxy.slices.join(', ')),
          trans.__('for %1', age(trans, proxy.created, now))
        ]
          .filter(Boolean)
          .join(' · ')}
      </div>
      {proxy.pod && (
        <button
          type="button"
          className="pw-link"
          aria-label={trans.__('Log of the proxy of session %1', proxy.session)}
          onClick={() => actions.openLog(proxy.pod, trans.__('Proxy %1', proxy.session))}
        >
          {trans.__('Log')}
        </button>
      )}
    </li>
  );
}
