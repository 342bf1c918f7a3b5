/** The slice map: one picture in which one sees what is ready, starting, down, mine and someone else's. */
import * as React from 'react';

import { looksLike } from '../models/cluster';
import { chipsPath, hostPlaces, hostSize, IPlace, IShape, layout, sliceSize } from '../models/layout';
import { ITrans } from '../models/trans';
import { healthWord, holderWord, slicesSentence } from '../models/words';
import { ISlice } from '../models/wire';

/** Room for half of a frame's line, which a notebook's output would cut off. */
const EDGE = 1;

export interface ISliceMapProps {
  readonly slices: readonly ISlice[];
  readonly trans: ITrans;
  /** Width to fill, in pixels. */
  readonly width: number;
}

export function SliceMap({ slices, trans, width }: ISliceMapProps): JSX.Element {
  const drawing = layout(slices, width - 2 * EDGE);
  return (
    <svg
      className="pw-map"
      role="img"
      aria-label={slicesSentence(trans, slices)}
      width={drawing.width + 2 * EDGE}
      height={drawing.height + 2 * EDGE}
      viewBox={`${-EDGE} ${-EDGE} ${drawing.width + 2 * EDGE} ${drawing.height + 2 * EDGE}`}
    >
      {drawing.places.map(place => (
        <SlicePicture key={place.slice.id} {...place} shape={drawing.shape} trans={trans} />
      ))}
    </svg>
  );
}

/** Drawn again only when its looks or its place changed: there may be a thousand beside it. */
const SlicePicture = React.memo(function SlicePicture({
  slice,
  x,
  y,
  shape,
  trans
}: IPictureProps): JSX.Element {
  const size = sliceSize(slice, shape);
  const holder = slice.holder ? (slice.holder.mine ? 'pw-mine' : 'pw-held') : 'pw-free';
  return (
    <g
      className={`pw-slice pw-${slice.health} ${holder}`}
      transform={`translate(${x} ${y})`}
      data-slice={slice.id}
      data-health={slice.health}
    >
      <title>
        {trans.__('Slice %1 (%2): %3, %4', slice.number, slice.instance_type, healthWord(trans, slice.health), holderWord(trans, slice))}
      </title>
      <rect className="pw-frame" width={size.width} height={size.height} rx={shape.label ? 4 : 1} />
      <rect className="pw-bar" width={size.width} height={shape.label ? 3 : 1.5} />
      {shape.label > 0 && (
        <text className="pw-label" x={shape.padding} y={shape.padding + shape.label - 5}>
          {mark(slice)} {slice.number}
          {slice.holder?.mine ? ' ★' : ''}
        </text>
      )}
      <Hosts slice={slice} shape={shape} />
    </g>
  );
}, samePicture);

type IPictureProps = IPlace & { shape: IShape; trans: ITrans };

function samePicture(one: IPictureProps, other: IPictureProps): boolean {
  return one.x === other.x && one.y === other.y && one.shape === other.shape && one.trans === other.trans && looksLike(one.slice, other.slice);
}

function Hosts({ slice, shape }: { slice: ISlice; shape: IShape }): JSX.Element {
  const places = hostPlaces(slice, shape);
  if (!shape.label && slice.hosts.every(host => host.health === slice.health)) {
    // One path for the whole slice: with a thousand of them, the number of elements is what costs.
    return (
      <path className={`pw-chips pw-${slice.health}`} d={places.map(({ host, x, y }) => chipsPath(host, x, y, shape)).join('')} />
    );
  }
  return (
    <>
      {places.map(({ host, x, y }, index) => {
        const size = hostSize(host, shape);
        return (
          <React.Fragment key={index}>
            <path className={`pw-chips pw-${host.health}`} d={chipsPath(host, x, y, shape)} />
            {host.health === 'down' && (
              <path className="pw-cross" d={`M${x} ${y}l${size.width} ${size.height}M${x + size.width} ${y}l${-size.width} ${size.height}`} />
            )}
          </React.Fragment>
        );
      })}
    </>
  );
}

/** The state once more, for eyes that do not tell the colors apart. */
function mark(slice: ISlice): string {
  return { ready: '●', starting: '◌', down: '✕' }[slice.health];
}

/** What the colors and fillings mean. */
export function SliceLegend({ trans }: { trans: ITrans }): JSX.Element {
  return (
    <ul className="pw-legend" aria-label={trans.__('Legend')}>
      <li className="pw-ready">{trans.__('● ready')}</li>
      <li className="pw-starting">{trans.__('◌ starting')}</li>
      <li className="pw-down">{trans.__('✕ down')}</li>
      <li className="pw-mine">{trans.__('★ filled: mine')}</li>
      <li className="pw-held">{trans.__('shaded: someone else’s')}</li>
    </ul>
  );
}
