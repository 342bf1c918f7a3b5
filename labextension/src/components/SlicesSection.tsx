/** The slices of the cluster in view, as a map or a list. */
import * as React from 'react';

import { drillAction } from '../models/drill';
import { Holdings } from '../models/holdings';
import { IShape, shapeOf } from '../models/layout';
import { Model } from '../models/model';
import { filtered } from '../models/slicefilter';
import { MANY_SLICES, SliceView } from '../models/sliceview';
import { ITrans } from '../models/trans';
import { slicesSentence } from '../models/words';
import { IService, ISlice } from '../models/wire';
import { IActions } from './actions';
import { LinkButton } from './Button';
import { ClusterState, Rows } from './ClusterState';
import { useModel, useNow, useWidth } from './hooks';
import { SliceDetails } from './SliceDetails';
import { SliceLegend, SliceMap } from './SliceMap';
import { SliceList } from './SliceList';
import { SliceTools } from './SliceTools';

export interface ISlicesSectionProps {
  readonly model: Model;
  readonly actions: IActions;
  readonly view: SliceView;
  readonly trans: ITrans;
}

export function SlicesSection({ model, actions, view, trans }: ISlicesSectionProps): React.JSX.Element {
  useModel(model, 'cluster', 'sessions', 'front', 'link');
  const look = React.useSyncExternalStore(view.subscribe, view.value);
  const box = React.useRef<HTMLDivElement>(null);
  const width = useWidth(box, 230);
  const slices = model.cluster?.rows('slices') ?? [];
  const services = model.cluster?.rows('services') ?? [];
  const { holdings } = model;
  const many = slices.length >= MANY_SLICES;
  const shown = many ? filtered(look.filter, slices, holdings, trans) : slices;
  return (
    <div ref={box}>
      <SliceTools
        place={model.cluster?.place ?? ''}
        total={slices.length}
        shown={shown.length}
        many={many}
        look={look}
        set={view.set}
        trans={trans}
      />
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
        {!shown.length && <NoSliceFits filter={look.filter} reset={() => view.set({ filter: '' })} trans={trans} />}
        {byService(shown).map(([service, of]) => (
          <Service
            key={service}
            name={service}
            slices={of}
            holdings={holdings}
            services={services}
            usable={model.live}
            list={look.list}
            width={width}
            shape={shapeOf(slices.length, look.zoom)}
            actions={actions}
            trans={trans}
          />
        ))}
        {!look.list && <SliceLegend slices={shown} holdings={holdings} trans={trans} />}
      </Rows>
    </div>
  );
}

function NoSliceFits(props: { filter: string; reset: () => void; trans: ITrans }): React.JSX.Element {
  const { filter, reset, trans } = props;
  return (
    <p className="pw-row">
      {trans.__('No slice fits “%1”.', filter)}
      <LinkButton label={trans.__('Show all')} run={reset} />
    </p>
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
  readonly shape: IShape;
  readonly actions: IActions;
  readonly trans: ITrans;
}

/** One service's slices under its name: slice numbers are only unique within a service. */
function Service(props: IServiceProps): React.JSX.Element {
  const { name, slices, holdings, services, usable, list, width, shape, actions, trans } = props;
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
            shape={shape}
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
