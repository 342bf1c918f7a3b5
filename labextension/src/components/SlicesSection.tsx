/** The slices of the cluster in view: the map, or the same as a list. */
import * as React from 'react';

import { Holdings } from '../models/holdings';
import { Model } from '../models/model';
import { ITrans } from '../models/trans';
import { slicesSentence } from '../models/words';
import { ISlice } from '../models/wire';
import { IActions } from './actions';
import { ClusterState, Rows } from './ClusterState';
import { useModel, useNow, useWidth } from './hooks';
import { SliceLegend, SliceMap } from './SliceMap';
import { SliceList } from './SliceList';

/** Up to here a screen reader gets the list beside the picture; beyond, it is one button away. */
const FEW = 100;

export function SlicesSection(props: { model: Model; actions: IActions; trans: ITrans }): JSX.Element {
  const { model, actions, trans } = props;
  useModel(model, 'cluster', 'sessions', 'front', 'link');
  const box = React.useRef<HTMLDivElement>(null);
  const width = useWidth(box, 230);
  const [list, setList] = React.useState(false);
  const slices = model.cluster?.rows('slices') ?? [];
  const { holdings } = model;
  return (
    <div ref={box}>
      {model.cluster?.place && <p className="pw-muted">{trans.__('in %1', model.cluster.place)}</p>}
      <ClusterState model={model} trans={trans} />
      <Rows
        model={model}
        trans={trans}
        empty={slices.length ? null : trans.__('There are no slices here. A Shared Pathways Service brings them; pathways-jupyter doctor looks for one.')}
        // Above stands why nothing is known.
        unknown=""
      >
        <div className="pw-row">
          <span className="pw-muted">{slicesSentence(trans, slices, holdings)}</span>
          <button type="button" className="pw-link" aria-pressed={list} onClick={() => setList(!list)}>
            {list ? trans.__('Show as a map') : trans.__('Show as a list')}
          </button>
        </div>
        {byService(slices).map(([service, of]) => (
          <Service key={service} name={service} slices={of} holdings={holdings} list={list} width={width} actions={actions} trans={trans} />
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
  readonly list: boolean;
  readonly width: number;
  readonly actions: IActions;
  readonly trans: ITrans;
}

/** A heading for each service: numbers of slices mean nothing without it. */
function Service({ name, slices, holdings, list, width, actions, trans }: IServiceProps): JSX.Element {
  const now = useNow();
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
          <SliceMap slices={slices} holdings={holdings} trans={trans} width={width} />
          {slices.length <= FEW && (
            <div className="pw-unseen">
              <SliceList slices={slices} holdings={holdings} trans={trans} now={now} />
            </div>
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
