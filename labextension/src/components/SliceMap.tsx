/** The slice map: the health and the owner of each slice, by shape as well as by color. */
import * as React from 'react';

import { looksLike } from '../models/cluster';
import { Holdings, IHolding, Owner, sameHolding } from '../models/holdings';
import { ChipLook, chipsPath, hostPlaces, hostSize, IPlace, IShape, layout, sliceSize } from '../models/layout';
import { ITrans } from '../models/trans';
import { sliceSentence, slicesSentence } from '../models/words';
import { Health, ISlice } from '../models/wire';

/** Margin of the drawing, so that frames are not clipped at its edge. */
const EDGE = 1;

/** The health as a symbol, for users who cannot distinguish the colors. */
const HEALTH_MARKS: { readonly [health in Health]: string } = { ready: '●', starting: '○', down: '✕' };
const OWNER_MARKS: { readonly [owner in Owner]: string } = { this: ' ★', mine: ' ☆', other: '', free: '' };
const CHIP_LOOKS: { readonly [owner in Owner]: ChipLook } = {
  this: 'full',
  mine: 'ring',
  other: 'hatched',
  free: 'hollow'
};

export interface ISliceMapProps {
  readonly slices: readonly ISlice[];
  readonly holdings: Holdings;
  readonly trans: ITrans;
  /** Width to fill, in pixels. */
  readonly width: number;
}

export function SliceMap({ slices, holdings, trans, width }: ISliceMapProps): React.JSX.Element {
  const drawing = layout(slices, width - 2 * EDGE);
  return (
    <svg
      className="pw-map"
      role="img"
      aria-label={slicesSentence(trans, slices, holdings)}
      width={drawing.width + 2 * EDGE}
      height={drawing.height + 2 * EDGE}
      viewBox={`${-EDGE} ${-EDGE} ${drawing.width + 2 * EDGE} ${drawing.height + 2 * EDGE}`}
    >
      {drawing.places.map(place => (
        <SlicePicture
          key={place.slice.id}
          {...place}
          holding={holdings.of(place.slice)}
          shape={drawing.shape}
          trans={trans}
        />
      ))}
    </svg>
  );
}

type IPictureProps = IPlace & { holding: IHolding; shape: IShape; trans: ITrans };

/** One slice. Memoized, because a map may have a thousand: renders only when its look or place changes. */
const SlicePicture = React.memo(
  function SlicePicture({ slice, holding, x, y, shape, trans }: IPictureProps): React.JSX.Element {
    const size = sliceSize(slice, shape);
    const lost = holding.lost ? ' pw-lost' : '';
    return (
      <g
        className={`pw-slice pw-${slice.health} pw-of-${holding.owner}${lost}`}
        transform={`translate(${x} ${y})`}
        data-slice={slice.id}
        data-health={slice.health}
        data-owner={holding.owner}
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
        <Hosts slice={slice} look={holding.lost ? 'hollow' : CHIP_LOOKS[holding.owner]} shape={shape} />
      </g>
    );
  },
  (one, other) =>
    one.x === other.x &&
    one.y === other.y &&
    one.shape === other.shape &&
    one.trans === other.trans &&
    sameHolding(one.holding, other.holding) &&
    looksLike(one.slice, other.slice)
);

function Hosts({ slice, look, shape }: { slice: ISlice; look: ChipLook; shape: IShape }): React.JSX.Element {
  const places = hostPlaces(slice, shape);
  if (!shape.label && slice.hosts.every(host => host.health === slice.health)) {
    // One path for the whole slice: with a thousand slices, the number of elements dominates the cost.
    const path = places.map(({ host, x, y }) => chipsPath(host, x, y, shape, look)).join('');
    return <path className={`pw-chips pw-${slice.health} pw-${look}`} d={path} />;
  }
  return (
    <>
      {places.map(({ host, x, y }, index) => {
        const size = hostSize(host, shape);
        return (
          <React.Fragment key={index}>
            <path className={`pw-chips pw-${host.health} pw-${look}`} d={chipsPath(host, x, y, shape, look)} />
            {host.health === 'down' && (
              <path
                className="pw-cross"
                d={`M${x} ${y}l${size.width} ${size.height}M${x + size.width} ${y}l${-size.width} ${size.height}`}
              />
            )}
          </React.Fragment>
        );
      })}
    </>
  );
}

/** The legend; only the shapes that are in the map, so that it fits on one line. */
export function SliceLegend({
  slices,
  holdings,
  trans
}: Pick<ISliceMapProps, 'slices' | 'holdings' | 'trans'>): React.JSX.Element {
  const health = new Set(slices.map(slice => slice.health));
  const owners = new Set(slices.map(slice => holdings.of(slice).owner));
  const words: { readonly [owner in Owner]: string } = {
    this: trans.__('★ this notebook'),
    mine: trans.__('☆ my other notebooks'),
    other: trans.__('others'),
    free: trans.__('free')
  };
  const states: { readonly [state in Health]: string } = {
    ready: trans.__('● ready'),
    starting: trans.__('○ starting'),
    down: trans.__('✕ down')
  };
  return (
    <ul className="pw-legend" aria-label={trans.__('Legend')}>
      {(['this', 'mine', 'other', 'free'] as const).map(
        owner =>
          owners.has(owner) && (
            <li key={owner}>
              <Swatch look={CHIP_LOOKS[owner]} /> {words[owner]}
            </li>
          )
      )}
      {(['ready', 'starting', 'down'] as const).map(state => health.has(state) && <li key={state}>{states[state]}</li>)}
    </ul>
  );
}

function Swatch({ look }: { look: ChipLook }): React.JSX.Element {
  const shape: IShape = { chip: 9, gap: 0, space: 0, padding: 0, label: 0, margin: 0 };
  const chip = { pod: '', node: '', health: 'ready' as const, chips: 1, reason: '' };
  return (
    <svg className="pw-swatch" width={11} height={11} viewBox="-1 -1 11 11" aria-hidden="true">
      <path className={`pw-chips pw-${look}`} d={chipsPath(chip, 0, 0, shape, look)} />
    </svg>
  );
}
