/** The services and the proxies that hold their slices. */
import * as React from 'react';

import { baseName } from '../models/holdings';
import { Model } from '../models/model';
import { ITrans } from '../models/trans';
import { age, reclaimableWord, sentence, silenceSentence } from '../models/words';
import { IProxy, IService } from '../models/wire';
import { IActions, ISectionBodyProps } from './actions';
import { Button, LinkButton } from './Button';
import { Rows } from './ClusterState';
import { useModel, useNow } from './hooks';
import { Toned } from './Toned';

export function ServicesSection({ model, actions, trans }: ISectionBodyProps): React.JSX.Element {
  useModel(model, 'cluster', 'sessions', 'front', 'link');
  const services = model.cluster?.rows('services') ?? [];
  const proxies = model.cluster?.rows('proxies') ?? [];
  return (
    <>
      <Rows
        model={model}
        trans={trans}
        empty={services.length ? null : trans.__('There are no Pathways services here.')}
      >
        <ul className="pw-list" aria-label={trans.__('Services')}>
          {services.map(service => (
            <Service key={service.id} service={service} actions={actions} trans={trans} />
          ))}
        </ul>
      </Rows>
      <h3>{trans.__('Proxies')}</h3>
      <Rows model={model} trans={trans} empty={proxies.length ? null : trans.__('There are no proxies.')}>
        <ul className="pw-list" aria-label={trans.__('Proxies')}>
          {proxies.map(proxy => (
            <Proxy key={proxy.id} proxy={proxy} model={model} actions={actions} trans={trans} />
          ))}
        </ul>
      </Rows>
      {model.live && (
        <div className="pw-buttons">
          <Button label={trans.__('Clean up stale proxies')} run={() => actions.sweep()} />
        </div>
      )}
    </>
  );
}

function Service(props: { service: IService; actions: IActions; trans: ITrans }): React.JSX.Element {
  const { service, actions, trans } = props;
  return (
    <li>
      <div className="pw-head">
        <b>{service.name}</b>
        <Toned tone={service.tone}>{service.health}</Toned>
      </div>
      {service.reason && <div className="pw-muted">{sentence(service.reason)}</div>}
      {service.capacity.map(capacity => (
        <div key={capacity.instance_type} className="pw-muted">
          {trans.__(
            '%1: %2 of %3 free, %4 ready',
            capacity.instance_type,
            capacity.free,
            capacity.total,
            capacity.ready
          )}
          {capacity.reclaimable > 0 && trans.__(', %1 %2', capacity.reclaimable, reclaimableWord(trans))}
        </div>
      ))}
      <div className="pw-details">
        <span className="pw-muted">{service.version}</span>
        {service.pod && (
          <LinkButton
            label={trans.__('Log')}
            name={trans.__('Log of the resource manager of %1', service.name)}
            run={() => actions.openLog(service.pod, service.name)}
          />
        )}
      </div>
    </li>
  );
}

function Proxy(props: { proxy: IProxy; model: Model; actions: IActions; trans: ITrans }): React.JSX.Element {
  const { proxy, model, actions, trans } = props;
  const now = useNow();
  // A session has the notebook's present path; its Job has the path at the time of connecting.
  const notebook = baseName(model.sessions.find(each => each.id === proxy.session)?.notebook || proxy.notebook);
  const owner = proxy.session === model.session?.id ? 'this' : proxy.mine ? 'mine' : 'other';
  const title = {
    this: trans.__('This notebook'),
    mine: notebook || trans.__('My session %1', proxy.session),
    other: proxy.user || trans.__('Unknown user')
  }[owner];
  return (
    <li className={`pw-is-${owner}`} data-owner={owner}>
      <div className="pw-head">
        <b>{title}</b>
        <Toned tone={proxy.tone}>{proxy.reclaimable ? reclaimableWord(trans) : proxy.health}</Toned>
      </div>
      <div className="pw-details">
        <span className="pw-muted">
          {[
            proxy.reclaimable && silenceSentence(trans, proxy.reclaimable, now),
            owner !== 'mine' && notebook,
            proxy.slices.length > 0 && trans._n('slice %2', 'slices %2', proxy.slices.length, proxy.slices.join(', ')),
            (model.cluster?.rows('services').length ?? 0) > 1 && proxy.service,
            proxy.waiting && trans.__('waiting for slices'),
            trans.__('for %1', age(trans, proxy.since, now)),
            proxy.until > now && trans.__('ends within %1', age(trans, now, proxy.until))
          ]
            .filter(Boolean)
            .join(' · ')}
        </span>
        {proxy.pod && (
          <LinkButton
            label={trans.__('Log')}
            name={trans.__('Log of the proxy of session %1', proxy.session)}
            run={() => actions.openLog(proxy.pod, trans.__('Proxy %1', proxy.session))}
          />
        )}
      </div>
    </li>
  );
}
