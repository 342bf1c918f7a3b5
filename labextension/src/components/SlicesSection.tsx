/** The slices of the cluster in view: the map, or the same as a table. */
import * as React from 'react';

import { Model } from '../models/model';
import { ITrans } from '../models/trans';
import { slicesSentence } from '../models/words';
import { IActions } from './actions';
import { ClusterState } from './ClusterState';
import { useModel, useNow, useWidth } from './hooks';
import { SliceLegend, SliceMap } from './SliceMap';
import { SliceTable } from './SliceTable';

/** Up to here a screen reader gets the table beside the picture; beyond, it is one button away. */
const FEW = 100;

export function SlicesSection(props: { model: Model; actions: IActions; trans: ITrans }): JSX.Element {
  const { model, actions, trans } = props;
  useModel(model, 'cluster');
  const now = useNow(30);
  const box = React.useRef<HTMLDivElement>(null);
  const width = useWidth(box, 280);
  const [table, setTable] = React.useState(false);
  const slices = model.cluster?.rows('slices') ?? [];
  return (
    <div ref={box}>
      {model.cluster?.place && <p className="pw-muted">{trans.__('in %1', model.cluster.place)}</p>}
      <ClusterState model={model} trans={trans} empty={slices.length ? '' : trans.__('There are no slices here.')} />
      {slices.length > 0 && (
        <>
          <div className="pw-row">
            <span className="pw-muted">{slicesSentence(trans, slices)}</span>
            <button type="button" className="pw-link" aria-pressed={table} onClick={() => setTable(!table)}>
              {table ? trans.__('Show as a map') : trans.__('Show as a table')}
            </button>
          </div>
          {table ? (
            <SliceTable slices={slices} trans={trans} now={now} openLog={actions.openLog} />
          ) : (
            <>
              <SliceMap slices={slices} trans={trans} width={width} />
              {slices.length <= FEW && (
                <div className="pw-unseen">
                  <SliceTable slices={slices} trans={trans} now={now} />
                </div>
              )}
              <SliceLegend trans={trans} />
            </>
          )}
        </>
      )}
    </div>
  );
}
