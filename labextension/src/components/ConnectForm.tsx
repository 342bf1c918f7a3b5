/** The connect dialog's content. What is chosen becomes a line that one could have typed. */
import * as React from 'react';

import { Api, asProblem, IContexts, IOffer } from '../models/api';
import { connectLine, IChoice, missing } from '../models/line';
import { ITrans } from '../models/trans';
import { ICapacity, IProblem, IScope } from '../models/wire';
import { Options } from './DragLine';
import { Field, Select } from './Field';
import { Notice } from './Notice';

/** How the embedded cluster is spelled in the list of contexts. */
const LOCAL = '\u0000local';

export interface IConnectFormProps {
  readonly api: Api;
  readonly trans: ITrans;
  readonly first: IChoice;
  onChange(choice: IChoice): void;
  /** Called after each drawing, when the browser knows which inputs are valid. */
  onDrawn(): void;
}

export function ConnectForm({ api, trans, first, onChange, onDrawn }: IConnectFormProps): JSX.Element {
  const [choice, setChoice] = React.useState(first);
  const [places, setPlaces] = React.useState<IContexts | null>(null);
  const { offers, problem, asking } = useOffers(api, trans, choice, places);
  const choose = (some: Partial<IChoice>) => {
    const next = { ...choice, ...some };
    setChoice(next);
    onChange(next);
  };

  React.useEffect(() => {
    void api.contexts().then(
      found => {
        setPlaces(found);
        const known = found.contexts.includes(first.context);
        if (!first.local && !known) {
          choose(found.current ? { context: found.current } : { local: true, context: '' });
        }
      },
      () => setPlaces({ contexts: [], current: '', local: false, profiles: [], problem: null })
    );
  }, []);

  const offer = offers.find(each => each.name === choice.service) ?? offers[0];
  const capacity = offer?.capacity.find(each => each.instance_type === choice.instanceType);
  React.useEffect(() => {
    const best = offer?.capacity[0];
    if (best && !capacity) {
      choose({ instanceType: best.instance_type, count: Math.max(1, best.free) });
    }
  }, [offer, capacity]);

  React.useEffect(onDrawn);
  const lacking = missing(choice);

  return (
    <div className="pw-form">
      <Select
        label={trans.__('Cluster')}
        value={choice.local ? LOCAL : choice.context}
        options={[
          ...(places?.contexts ?? []).map(context => ({ value: context, label: context })),
          { value: LOCAL, label: places?.local ? trans.__('Embedded cluster on this machine') : trans.__('Embedded cluster on this machine (starts when used)') }
        ]}
        onChange={value =>
          choose({ local: value === LOCAL, context: value === LOCAL ? '' : value, service: '', instanceType: '' })
        }
      />
      <Field label={trans.__('Namespace')} value={choice.namespace} placeholder={trans.__('as the context says')} onChange={namespace => choose({ namespace, service: '' })} />
      <Select
        label={trans.__('Service')}
        value={choice.service}
        options={[
          { value: '', label: offers.length === 1 ? trans.__('%1 (the only one)', offers[0].name) : trans.__('the only one in the namespace') },
          ...(offers.length > 1 ? offers.map(each => ({ value: each.name, label: each.name })) : [])
        ]}
        onChange={service => choose({ service })}
      />
      {offer && offer.capacity.length > 0 ? (
        <Select
          label={trans.__('Slice type')}
          value={choice.instanceType}
          options={offer.capacity.map(each => ({ value: each.instance_type, label: free(trans, each) }))}
          onChange={instanceType => choose({ instanceType })}
        />
      ) : (
        <Field
          label={trans.__('Slice type')}
          value={choice.instanceType}
          placeholder="tpuv6e:2x2"
          required={!choice.local && !choice.profile}
          problem={lacking === 'type' && !asking ? trans.__('Needed to connect, such as tpuv6e:2x2.') : undefined}
          onChange={instanceType => choose({ instanceType })}
        />
      )}
      <Field
        label={trans.__('Number of slices')}
        type="number"
        value={choice.count ? String(choice.count) : ''}
        required={!!choice.instanceType}
        // Without a type the line has no place for a number.
        disabled={!choice.instanceType}
        problem={lacking === 'count' ? trans.__('A whole number, at least 1.') : undefined}
        onChange={count => choose({ count: Number(count) })}
      />
      {places && places.profiles.length > 0 && (
        <Select
          label={trans.__('Profile')}
          value={choice.profile}
          options={[{ value: '', label: trans.__('none') }, ...places.profiles.map(name => ({ value: name, label: name }))]}
          onChange={profile => choose({ profile })}
        />
      )}
      <label className="pw-check">
        <input type="checkbox" checked={choice.wait} onChange={event => choose({ wait: event.target.checked })} />
        {trans.__('Wait for slices that are taken')}
      </label>
      {asking && <Notice title={trans.__('Asking the cluster…')} />}
      {problem && <Notice tone="wait" title={problem.message} hint={problem.hint} />}
      {places?.problem && !choice.local && <Notice tone="wait" title={places.problem.message} hint={places.problem.hint} />}
      {capacity && capacity.free < choice.count && (
        <Notice
          tone="wait"
          title={trans.__('Only %1 of %2 slices are free now.', capacity.free, capacity.total)}
          hint={trans.__('Take fewer, or wait for them.')}
        />
      )}
      <p className="pw-muted">{trans.__('This runs in the notebook:')}</p>
      <code className="pw-line">
        <Options line={connectLine(choice)} />
      </code>
    </div>
  );
}

function free(trans: ITrans, capacity: ICapacity): string {
  return trans.__('%1 (%2 of %3 free)', capacity.instance_type, capacity.free, capacity.total);
}

interface IOffers {
  readonly offers: readonly IOffer[];
  readonly problem: IProblem | null;
  readonly asking: boolean;
}

const NO_OFFERS: IOffers = { offers: [], problem: null, asking: false };
const ASKING: IOffers = { offers: [], problem: null, asking: true };

/** What the chosen place offers; asked again when the place changes. */
function useOffers(api: Api, trans: ITrans, choice: IChoice, places: IContexts | null): IOffers {
  const { local, context, namespace } = choice;
  const askable = !!places && (local ? places.local : !!context);
  const place = JSON.stringify([local, context, namespace]);
  // An answer carries its place: between a change of the place and the next effect, the last one is of another cluster.
  const [found, setFound] = React.useState({ place: '', answer: NO_OFFERS });
  React.useEffect(() => {
    if (!askable) {
      return;
    }
    let wanted = true;
    const take = (answer: IOffers) => wanted && setFound({ place, answer });
    const scope: IScope = { local, context, namespace, session: '' };
    const timer = setTimeout(() => {
      void api.services(scope).then(
        ({ services }) => take({ ...NO_OFFERS, offers: services }),
        (error: unknown) => take({ ...NO_OFFERS, problem: asProblem(error, trans) })
      );
    }, 300);
    return () => {
      wanted = false;
      clearTimeout(timer);
    };
  }, [askable, place]);
  return !askable ? NO_OFFERS : found.place === place ? found.answer : ASKING;
}
