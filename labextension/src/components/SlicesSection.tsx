/** The slices of the cluster in view, as a map or a list. */
import * as React from 'react';

import { IShape, MANY_SLICES, shapeOf } from '../models/layout';
import { filtered } from '../models/slicefilter';
import { PanelView } from '../models/remembered';
import { ITrans } from '../models/trans';
import { slicesSentence } from '../models/words';
import { ISlice } from '../models/wire';
import { ISectionBodyProps } from './actions';
import { LinkButton } from './Button';
import { ClusterState, Rows } from './ClusterState';
import { useModel, useNow, useWidth } from './hooks';
import { SliceDetails } from './SliceDetails';
import { SliceLegend, SliceMap } from './SliceMap';
import { ISliceListProps, SliceList } from './SliceList';
import { SliceTools } from './SliceTools';

export function SlicesSection(props: ISectionBodyProps & { view: PanelView }): React.JSX.Element {
  const { model, actions, view, trans } = props;
  useModel(model, 'cluster', 'sessions', 'front', 'link');
  const look = React.useSyncExternalStore(view.subscribe, view.value);
  const box = React.useRef<HTMLDivElement>(null);
  const width = useWidth(box, 230);
  const slices = model.cluster?.rows('slices') ?? [];
  const holdings = model.holdings();
  const many = slices.length >= MANY_SLICES;
  const shown = many ? filtered(look.filter, slices, holdings, trans) : slices;
  // The same groups while nothing has changed, so that their maps need not be laid out again.
  const services = React.useMemo(() => byService(shown), [shown]);
  // Above a long map: below it, no one would see it.
  const legend = !look.list && <SliceLegend slices={shown} holdings={holdings} trans={trans} />;
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
      <ClusterState model={model} actions={actions} trans={trans} />
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
        {many && legend}
        {!shown.length && <NoSliceFits filter={look.filter} reset={() => view.set({ filter: '' })} trans={trans} />}
        {services.map(([service, of]) => (
          <Service
            key={service}
            name={service}
            slices={of}
            holdings={holdings}
            list={look.list}
            width={width}
            shape={shapeOf(slices.length, look.zoom)}
            openLog={actions.openLog}
            trans={trans}
          />
        ))}
        {!many && legend}
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

interface IServiceProps extends Omit<ISliceListProps, 'now'> {
  readonly name: string;
  readonly list: boolean;
  readonly width: number;
  readonly shape: IShape;
}

/** One service's slices under its name: slice numbers are only unique within a service. */
function Service(props: IServiceProps): React.JSX.Element {
  const { name, slices, holdings, list, width, shape, openLog, trans } = props;
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
        <SliceList slices={slices} holdings={holdings} trans={trans} now={now} openLog={openLog} />
      ) : (
        <>
          <SliceMap
            slices={slices}
            holdings={holdings}
            trans={trans}
            width={width}
            shape={shape}
            selected={chosen?.id ?? ''}
            onSelect={select}
          />
          {chosen && (
            <SliceDetails
              slice={chosen}
              holding={holdings.of(chosen)}
              trans={trans}
              now={now}
              openLog={openLog}
              close={() => select('')}
            />
          )}
        </>
      )}
    </>
  );
}

function byService(slices: readonly ISlice[]): readonly (readonly [string, readonly ISlice[]])[] {
  const services = [...new Set(slices.map(slice => slice.service))];
  return services.map(service => [service, slices.filter(slice => slice.service === service)] as const);
}
