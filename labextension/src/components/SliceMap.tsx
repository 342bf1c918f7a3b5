/** The slice map: the health and the owner of each slice, by shape as well as by color. */
import * as React from 'react';

import { looksLike } from '../models/cluster';
import { Holdings, IHolding, Owner, sameHolding } from '../models/holdings';
import {
  bands,
  ChipLook,
  chipsPath,
  crossPath,
  hostPlaces,
  IBand,
  IPlace,
  IShape,
  layout,
  moved,
  sliceSize
} from '../models/layout';
import { ITrans } from '../models/trans';
import { reclaimableWord, sliceSentence, slicesSentence } from '../models/words';
import { Health, IHost, ISlice } from '../models/wire';
import { isSame } from './hooks';

/** Margin of the drawing, so that frames are not clipped at its edge. */
const EDGE = 1;

/** The health as a symbol, for users who cannot distinguish the colors. */
const HEALTH_MARKS: { readonly [health in Health]: string } = { ready: '●', starting: '○', down: '✕' };
const OWNER_MARKS: { readonly [owner in Owner]: string } = {
  this: ' ★',
  mine: ' ☆',
  other: ' ☆',
  unknown: ' ?',
  free: ''
};
const CHIP_LOOKS: { readonly [owner in Owner]: ChipLook } = {
  this: 'full',
  mine: 'ring',
  other: 'hatched',
  unknown: 'hollow',
  free: 'hollow'
};

function chipLook(holding: IHolding): ChipLook {
  return holding.reclaimable ? 'half' : holding.lost ? 'hollow' : CHIP_LOOKS[holding.owner];
}

export interface ISliceMapProps {
  readonly slices: readonly ISlice[];
  readonly holdings: Holdings;
  readonly trans: ITrans;
  /** Width to fill, in pixels. */
  readonly width: number;
  readonly shape: IShape;
  /** Id of the slice whose details are shown; empty for none. */
  readonly selected: string;
  /** Show the details of a slice, or of none. */
  readonly onSelect: (slice: string) => void;
}

/** A list box: one stop for Tab, with arrow keys from slice to slice, Enter for details, and Escape to close them. */
export function SliceMap(props: ISliceMapProps): React.JSX.Element {
  const { slices, holdings, trans, width, shape, selected, onSelect } = props;
  const drawing = React.useMemo(() => layout(slices, width - 2 * EDGE, shape), [slices, width, shape]);
  // By its id, because a filter changes the places of slices. Without it, the first one.
  const [activeId, setActiveId] = React.useState('');
  const at = Math.max(
    0,
    slices.findIndex(slice => slice.id === activeId)
  );
  const active = drawing.places.at(at);
  const toggle = (slice: string) => onSelect(slice === selected ? '' : slice);
  const press = (event: React.KeyboardEvent) => {
    const next = moved(event.key, at, drawing.columns, slices.length);
    if (next !== null) {
      setActiveId(slices[next].id);
      document.getElementById(elementId(slices[next]))?.scrollIntoView({ block: 'nearest' });
    } else if ((event.key === 'Enter' || event.key === ' ') && active) {
      toggle(active.slice.id);
    } else if (event.key === 'Escape' && selected) {
      onSelect('');
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  };
  const click = (event: React.MouseEvent) => {
    const id = (event.target as Element).closest<SVGElement>('.pw-slice')?.dataset.slice;
    if (id !== undefined && slices.some(slice => slice.id === id)) {
      setActiveId(id);
      toggle(id);
    }
  };
  const chosen = drawing.places.find(place => place.slice.id === selected);
  const parts = React.useMemo(() => bands(drawing), [drawing]);
  return (
    <div
      className="pw-map"
      role="listbox"
      tabIndex={0}
      aria-label={slicesSentence(trans, slices, holdings)}
      aria-activedescendant={active && elementId(active.slice)}
      onKeyDown={press}
      onClick={click}
    >
      {parts.map((band, index) => (
        <Band
          key={index}
          band={band}
          isFirst={!index}
          isLast={index === parts.length - 1}
          width={drawing.width}
          shape={drawing.shape}
          holdings={band.places.map(place => holdings.of(place.slice))}
          trans={trans}
          active={active && band.places.includes(active) ? active : undefined}
          chosen={chosen && band.places.includes(chosen) ? chosen : undefined}
        />
      ))}
    </div>
  );
}

interface IBandProps {
  readonly band: IBand;
  readonly isFirst: boolean;
  readonly isLast: boolean;
  readonly width: number;
  readonly shape: IShape;
  readonly holdings: readonly IHolding[];
  readonly trans: ITrans;
  readonly active: IPlace | undefined;
  readonly chosen: IPlace | undefined;
}

/** Memoized, and skipped by the browser while it is out of sight. */
const Band = React.memo(
  function Band(props: IBandProps): React.JSX.Element {
    const { band, isFirst, isLast, width, shape, holdings, trans, active, chosen } = props;
    const top = band.top - (isFirst ? EDGE : 0);
    const height = band.bottom + (isLast ? EDGE : 0) - top;
    return (
      <div className="pw-band" role="presentation" style={{ height }}>
        <svg
          role="presentation"
          width={width + 2 * EDGE}
          height={height}
          viewBox={`${-EDGE} ${top} ${width + 2 * EDGE} ${height}`}
        >
          {band.places.map((place, index) => (
            <SlicePicture
              key={place.slice.id}
              {...place}
              holding={holdings[index]}
              shape={shape}
              trans={trans}
              chosen={place === chosen}
            />
          ))}
          {active && <Outline place={active} shape={shape} name="pw-active" />}
          {chosen && <Outline place={chosen} shape={shape} name="pw-chosen" />}
        </svg>
      </div>
    );
  },
  (one, other) =>
    isSame(one, other, 'width', 'shape', 'trans', 'isFirst', 'isLast') &&
    one.active?.slice.id === other.active?.slice.id &&
    one.chosen?.slice.id === other.chosen?.slice.id &&
    one.band.top === other.band.top &&
    one.band.bottom === other.band.bottom &&
    one.band.places.length === other.band.places.length &&
    one.band.places.every((place, index) => samePlace(place, other.band.places[index])) &&
    one.holdings.every((holding, index) => sameHolding(holding, other.holdings[index]))
);

function samePlace(one: IPlace, other: IPlace): boolean {
  return isSame(one, other, 'x', 'y') && looksLike(one.slice, other.slice);
}

function Outline({ place, shape, name }: { place: IPlace; shape: IShape; name: string }): React.JSX.Element {
  const size = sliceSize(place.slice, shape);
  return <rect className={name} x={place.x} y={place.y} width={size.width} height={size.height} rx={3} />;
}

function elementId(slice: ISlice): string {
  return `pathways-jupyter-slice-${slice.id}`;
}

type IPictureProps = IPlace & { holding: IHolding; shape: IShape; trans: ITrans; chosen: boolean };

/** One slice. Memoized, because a map may have a thousand: renders only when its look or place changes. */
const SlicePicture = React.memo(
  function SlicePicture({ slice, holding, x, y, shape, trans, chosen }: IPictureProps): React.JSX.Element {
    const size = sliceSize(slice, shape);
    const lost = holding.lost ? ' pw-lost' : '';
    const silent = holding.reclaimable ? ' pw-reclaimable' : '';
    return (
      <g
        className={`pw-slice pw-${slice.health} pw-of-${holding.owner}${lost}${silent}`}
        transform={`translate(${x} ${y})`}
        id={elementId(slice)}
        role="option"
        aria-selected={chosen}
        data-slice={slice.id}
        data-health={slice.health}
        data-owner={holding.owner}
        data-reclaimable={!!holding.reclaimable}
      >
        <title>{sliceSentence(trans, slice, holding)}</title>
        <rect className="pw-frame" width={size.width} height={size.height} rx={shape.label ? 4 : 1} />
        <rect className="pw-bar" width={size.width} height={shape.label ? 3 : 1.5} />
        {shape.label > 0 && (
          <text className="pw-label" x={shape.padding} y={shape.padding + shape.label - 5}>
            {HEALTH_MARKS[slice.health]} {slice.number}
            {OWNER_MARKS[holding.owner]}
          </text>
        )}
        <Hosts slice={slice} look={chipLook(holding)} shape={shape} />
      </g>
    );
  },
  (one, other) =>
    isSame(one, other, 'x', 'y', 'chosen', 'shape', 'trans') &&
    sameHolding(one.holding, other.holding) &&
    looksLike(one.slice, other.slice)
);

function Hosts({ slice, look, shape }: { slice: ISlice; look: ChipLook; shape: IShape }): React.JSX.Element {
  // A slice that its holder has lost is down, whatever its new workers do.
  const healthOf = (host: IHost) => (slice.health === 'down' && host.health === 'starting' ? 'down' : host.health);
  const places = hostPlaces(slice, shape);
  if (!shape.label && slice.hosts.every(host => healthOf(host) === slice.health)) {
    // One path for the whole slice: with a thousand slices, the number of elements dominates the cost.
    const path = places.map(({ host, x, y }) => chipsPath(host, x, y, shape, look)).join('');
    const crosses = places.map(({ host, x, y }) => crossPath(host, x, y, shape)).join('');
    return (
      <>
        <path className={`pw-chips pw-${slice.health} pw-${look}`} d={path} />
        {slice.health === 'down' && <path className="pw-cross" d={crosses} />}
      </>
    );
  }
  return (
    <>
      {places.map(({ host, x, y }, index) => (
        <React.Fragment key={index}>
          <path className={`pw-chips pw-${healthOf(host)} pw-${look}`} d={chipsPath(host, x, y, shape, look)} />
          {healthOf(host) === 'down' && <path className="pw-cross" d={crossPath(host, x, y, shape)} />}
        </React.Fragment>
      ))}
    </>
  );
}

/** The legend; only the shapes that are in the map, so that it fits on one line. */
export function SliceLegend(props: Pick<ISliceMapProps, 'slices' | 'holdings' | 'trans'>): React.JSX.Element {
  const { slices, holdings, trans } = props;
  const health = new Set(slices.map(slice => slice.health));
  const held = slices.map(slice => holdings.of(slice));
  const owners = new Set(held.filter(holding => !holding.reclaimable).map(holding => holding.owner));
  if (!slices.some(slice => slice.availability === 'free')) {
    // What no one holds and cannot run is hollow too, and not free.
    owners.delete('free');
  }
  const words: { readonly [owner in Owner]: string } = {
    this: trans.__('★ this notebook'),
    mine: holdings.hasFront ? trans.__('☆ my other notebooks') : trans.__('☆ my notebooks'),
    other: trans.__('☆ others'),
    unknown: trans.__('? holder not known'),
    free: trans.__('free')
  };
  const states: { readonly [state in Health]: string } = {
    ready: trans.__('● ready'),
    starting: trans.__('○ starting'),
    down: trans.__('✕ down')
  };
  return (
    <ul className="pw-legend" aria-label={trans.__('Legend')}>
      {(['this', 'mine', 'other', 'unknown', 'free'] as const).map(
        owner =>
          owners.has(owner) && (
            <li key={owner}>
              <Swatch look={CHIP_LOOKS[owner]} /> {words[owner]}
            </li>
          )
      )}
      {held.some(holding => holding.reclaimable) && (
        <li>
          <Swatch look="half" /> {reclaimableWord(trans)}
        </li>
      )}
      {(['ready', 'starting', 'down'] as const).map(state => health.has(state) && <li key={state}>{states[state]}</li>)}
    </ul>
  );
}

function Swatch({ look }: { look: ChipLook }): React.JSX.Element {
  const shape: IShape = { chip: 9, gap: 0, space: 0, padding: 0, label: 0, margin: 0 };
  return (
    <svg className="pw-swatch" width={11} height={11} viewBox="-1 -1 11 11" aria-hidden="true">
      <path className={`pw-chips pw-${look}`} d={chipsPath({ chips: 1 }, 0, 0, shape, look)} />
    </svg>
  );
}
