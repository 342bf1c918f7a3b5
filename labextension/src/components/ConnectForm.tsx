/** The connect dialog's form. Its values become a `%pathways connect` line. */
import * as React from 'react';

import { Api, IContexts, IOffer } from '../models/api';
import { asProblem } from '../models/problem';
import { connectLine, EMBEDDED, growsFor, IChoice, missing, placed, suggestedSlices } from '../models/line';
import { ITrans } from '../models/trans';
import { IScope } from '../models/scope';
import { ICapacity, IProblem } from '../models/wire';
import { Options } from './DragLine';
import { Field, Select } from './Field';
import { Notice } from './Notice';

const NO_PLACES: IContexts = {
  contexts: [],
  current: '',
  local: false,
  in_cluster: false,
  profiles: [],
  problem: null,
  more: []
};

/** The value of the embedded cluster in the list of contexts; no context can have this name. */
const LOCAL = '\u0000local';

export interface IConnectFormProps {
  readonly api: Api;
  readonly trans: ITrans;
  readonly first: IChoice;
  readonly onChange: (choice: IChoice) => void;
  /** Called after each render, when the browser knows which inputs are valid. */
  readonly onRendered: () => void;
}

export function ConnectForm({ api, trans, first, onChange, onRendered }: IConnectFormProps): React.JSX.Element {
  const [initial] = React.useState(first);
  const [choice, setChoice] = React.useState(initial);
  const [places, setPlaces] = React.useState<IContexts | null>(null);
  const { offers, problem, asking } = useOffers(api, trans, choice, places);
  const choose = React.useCallback((some: Partial<IChoice>) => setChoice(before => ({ ...before, ...some })), []);
  React.useEffect(() => onChange(choice), [choice, onChange]);

  React.useEffect(() => {
    void api.contexts().then(
      found => {
        setPlaces(found);
        choose(placed(initial, found));
      },
      (error: unknown) => setPlaces({ ...NO_PLACES, problem: asProblem(error, trans) })
    );
  }, [api, trans, initial, choose]);

  const offer = offers.find(each => each.name === choice.service) ?? offers.at(0);
  const capacity = offer?.capacity.find(each => each.instance_type === choice.instanceType);
  const suggested = suggestedSlices(offers.filter(each => !choice.service || each.name === choice.service));
  if (suggested && !capacity) {
    // Set during the render, not in an effect, so that no frame shows a type that the service does not have.
    choose({ ...suggested, service: choice.service || suggested.service });
  }

  React.useEffect(onRendered);
  const lack = missing(choice);
  // It has one service, in its default namespace.
  const starts = choice.local && !places?.local;
  const here = LOCAL + (choice.beside ?? '');

  return (
    <div className="pw-form">
      <Select
        label={trans.__('Cluster')}
        value={choice.beside ? here : choice.local ? LOCAL : choice.context}
        disabled={!!choice.beside}
        options={[
          ...(choice.beside ? [{ value: here, label: trans.__('%1, in which this kernel runs', choice.beside) }] : []),
          ...(places?.contexts ?? []).map(context => ({ value: context, label: context })),
          ...(places?.in_cluster
            ? [{ value: '', label: trans.__('The cluster in which the Jupyter server runs') }]
            : []),
          {
            value: LOCAL,
            label: places?.local
              ? trans.__('Embedded cluster on this machine')
              : trans.__('Embedded cluster on this machine (started when needed)')
          }
        ]}
        onChange={value =>
          choose({
            local: value === LOCAL,
            context: value === LOCAL ? '' : value,
            ...(value === LOCAL && !places?.local ? { ...EMBEDDED, namespace: '' } : { service: '', instanceType: '' })
          })
        }
      />
      <Field
        label={trans.__('Namespace')}
        value={choice.namespace}
        placeholder={starts ? '' : trans.__('from the context')}
        disabled={starts}
        onChange={namespace => choose({ namespace, service: '' })}
      />
      <Select
        label={trans.__('Service')}
        value={choice.service}
        disabled={starts}
        options={
          offers.length > 1
            ? offers.map(each => ({ value: each.name, label: each.name }))
            : [
                {
                  value: '',
                  label: offers.length
                    ? trans.__('%1 (the only service)', offers[0].name)
                    : trans.__('the only service in the namespace')
                }
              ]
        }
        onChange={service => choose({ service, instanceType: '' })}
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
          problem={lack === 'type' && !asking ? trans.__('Required, for example tpuv6e:2x2.') : undefined}
          onChange={instanceType => choose({ instanceType })}
        />
      )}
      <Field
        label={trans.__('Number of slices')}
        type="number"
        value={choice.count ? String(choice.count) : ''}
        required={!!choice.instanceType}
        // The line has no number without a type.
        disabled={!choice.instanceType}
        problem={lack === 'count' ? trans.__('Must be a whole number, at least 1.') : undefined}
        onChange={count => choose({ count: Number(count) })}
      />
      {places && places.profiles.length > 0 && (
        <Select
          label={trans.__('Profile')}
          value={choice.profile}
          options={[
            { value: '', label: trans.__('none') },
            ...places.profiles.map(name => ({ value: name, label: name }))
          ]}
          onChange={profile => choose({ profile })}
        />
      )}
      <label className="pw-check">
        <input type="checkbox" checked={choice.wait} onChange={event => choose({ wait: event.target.checked })} />
        {trans.__('Wait for slices that are taken')}
      </label>
      <details className="pw-more">
        <summary>{trans.__('More')}</summary>
        {places?.more.map(({ option, label, example }) => (
          <Field
            key={option}
            label={label}
            value={choice.more?.[option] ?? ''}
            placeholder={example}
            onChange={value => choose({ fields: places.more, more: { ...choice.more, [option]: value } })}
          />
        ))}
      </details>
      {asking && <Notice title={trans.__('Loading from the cluster…')} />}
      {problem && <Notice tone="wait" title={problem.message} hint={problem.hint} />}
      {places?.problem && !choice.local && (
        <Notice tone="wait" title={places.problem.message} hint={places.problem.hint} />
      )}
      {capacity && capacity.free < choice.count && <Shortage capacity={capacity} choice={choice} trans={trans} />}
      <div className="pw-runs">
        <p className="pw-muted">{trans.__('This runs in the notebook:')}</p>
        <code className="pw-line">
          <Options line={connectLine(choice)} />
        </code>
      </div>
    </div>
  );
}

interface IShortageProps {
  readonly capacity: ICapacity;
  readonly choice: IChoice;
  readonly trans: ITrans;
}

/** Fewer slices are free than chosen. */
function Shortage({ capacity, choice, trans }: IShortageProps): React.JSX.Element {
  if (growsFor(choice, capacity)) {
    return <Notice title={trans.__('The embedded cluster adds the slices that are missing.')} />;
  }
  return (
    <Notice
      tone="wait"
      title={
        capacity.free
          ? trans.__('Only %1 of %2 slices are free now.', capacity.free, capacity.total)
          : trans._n('The slice is not free now.', 'None of the %1 slices is free now.', capacity.total)
      }
      hint={
        capacity.total < choice.count
          ? trans.__('Use fewer slices.')
          : capacity.free
            ? trans.__('Use fewer slices, or wait until they are free.')
            : trans.__('“Wait for slices that are taken” connects as soon as they are free.')
      }
    />
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

/** Load the services of the chosen place; again whenever the place changes. */
function useOffers(api: Api, trans: ITrans, choice: IChoice, places: IContexts | null): IOffers {
  const { local, context, namespace, kernel = '' } = choice;
  const askable = !!places && (local ? places.local : !!context || !!kernel || places.in_cluster);
  const place = JSON.stringify([local, context, namespace, kernel]);
  // Keep the place with the answer: between a change of place and the next effect, the answer is another cluster's.
  const [found, setFound] = React.useState({ place: '', answer: NO_OFFERS });
  React.useEffect(() => {
    if (!askable) {
      return;
    }
    let wanted = true;
    const take = (answer: IOffers) => wanted && setFound({ place, answer });
    const scope: IScope = { local, context, namespace, session: '', kernel };
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
  }, [api, trans, askable, place, local, context, namespace, kernel]);
  return !askable ? NO_OFFERS : found.place === place ? found.answer : ASKING;
}
