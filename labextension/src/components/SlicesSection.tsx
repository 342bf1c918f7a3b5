/** The slices of the cluster in view, as a map or a list. */
import * as React from 'react';

import { drillAction } from '../models/drill';
import { Holdings } from '../models/holdings';
import { Model } from '../models/model';
import { ITrans } from '../models/trans';
import { slicesSentence } from '../models/words';
import { IService, ISlice } from '../models/wire';
import { IActions } from './actions';
import { ClusterState, Rows } from './ClusterState';
import { useModel, useNow, useWidth } from './hooks';
import { SliceDetails } from './SliceDetails';
import { SliceLegend, SliceMap } from './SliceMap';
import { SliceList } from './SliceList';

export function SlicesSection(props: { model: Model; actions: IActions; trans: ITrans }): React.JSX.Element {
  const { model, actions, trans } = props;
  useModel(model, 'cluster', 'sessions', 'front', 'link');
  const box = React.useRef<HTMLDivElement>(null);
  const width = useWidth(box, 230);
  const [list, setList] = React.useState(false);
  const slices = model.cluster?.rows('slices') ?? [];
  const services = model.cluster?.rows('services') ?? [];
  const { holdings } = model;
  return (
    <div ref={box}>
      <div className="pw-row">
        <span className="pw-muted">{model.cluster?.place && trans.__('in %1', model.cluster.place)}</span>
        {slices.length > 0 && (
          <button
            type="button"
            className="pw-link"
            aria-label={list ? trans.__('Show as a map') : trans.__('Show as a list')}
            onClick={() => setList(!list)}
          >
            {list ? trans.__('Map') : trans.__('List')}
          </button>
        )}
      </div>
      <ClusterState model={model} trans={trans} />
      <Rows
        model={model}
        trans={trans}
        empty={
          slices.length
            ? null
            : trans.__(
                'There are no slices here. They come with a Shared Pathways Service; run “pathways-jupyter doctor” to look for one.'
              )
        }
        // ClusterState shows the reason above.
        unknown=""
      >
        <p className="pw-muted">{slicesSentence(trans, slices, holdings)}</p>
        {byService(slices).map(([service, of]) => (
          <Service
            key={service}
            name={service}
            slices={of}
            holdings={holdings}
            services={services}
            usable={model.live}
            list={list}
            width={width}
            actions={actions}
            trans={trans}
          />
        ))}
        {!list && <SliceLegend slices={slices} holdings={holdings} trans={trans} />}
      </Rows>
    </div>
  );
}

interface IServiceProps {
  readonly name: string;
  readonly slices: readonly ISlice[];
  readonly holdings: Holdings;
  readonly services: readonly IService[];
  readonly usable: boolean;
  readonly list: boolean;
  readonly width: number;
  readonly actions: IActions;
  readonly trans: ITrans;
}

/** One service's slices under its name: slice numbers are only unique within a service. */
function Service(props: IServiceProps): React.JSX.Element {
  const { name, slices, holdings, services, usable, list, width, actions, trans } = props;
  const now = useNow();
  const [selected, select] = React.useState('');
  const chosen = slices.find(slice => slice.id === selected);
  const types = [...new Set(slices.map(slice => slice.instance_type))].join(', ');
  return (
    <>
      <h3>
        {name} <span className="pw-muted">{types}</span>
      </h3>
      {list ? (
        <SliceList slices={slices} holdings={holdings} trans={trans} now={now} openLog={actions.openLog} />
      ) : (
        <>
          <SliceMap
            slices={slices}
            holdings={holdings}
            trans={trans}
            width={width}
            selected={selected}
            onSelect={select}
          />
          {chosen && (
            <SliceDetails
              slice={chosen}
              holding={holdings.of(chosen)}
              trans={trans}
              now={now}
              openLog={actions.openLog}
              close={() => select('')}
              drillable={usable ? drillAction(chosen, services) : null}
              drill={actions.drill}
            />
          )}
        </>
      )}
    </>
  );
}

function byService(slices: readonly ISlice[]): readonly (readonly [string, readonly ISlice[]])[] {
  const groups = new Map<string, ISlice[]>();
  for (const slice of slices) {
    const group = groups.get(slice.service);
    if (group) {
      group.push(slice);
    } else {
      groups.set(slice.service, [slice]);
    }
  }
  return [...groups];
}
