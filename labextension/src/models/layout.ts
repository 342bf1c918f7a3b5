/**
 * Geometry of the slice map. A chip is a square, a host a block of chips, a slice a block of hosts under a bar; slices
 * wrap like words. The more slices, the smaller they are drawn, unless the user wants to see their chips.
 */
import { IHost, ISlice } from './wire';

export interface IPlace {
  readonly slice: ISlice;
  readonly x: number;
  readonly y: number;
}

export interface ILayout {
  /** Slices in a row. */
  readonly columns: number;
  readonly width: number;
  readonly height: number;
  readonly shape: IShape;
  readonly places: readonly IPlace[];
}

/** Sizes in pixels, the same for all slices of one map. */
export interface IShape {
  readonly chip: number;
  readonly gap: number;
  /** Between hosts. */
  readonly space: number;
  readonly padding: number;
  /** Height of the label; 0 if there is no room for one. */
  readonly label: number;
  /** Between slices. */
  readonly margin: number;
}

const LARGE: IShape = { chip: 11, gap: 2, space: 6, padding: 7, label: 16, margin: 8 };
const MEDIUM: IShape = { chip: 6, gap: 1, space: 3, padding: 4, label: 0, margin: 4 };
const SMALL: IShape = { chip: 3, gap: 1, space: 2, padding: 2, label: 0, margin: 2 };
/** In pixels; a host with smaller chips is drawn as one large chip, because their holes and lines would run together. */
const SMALLEST_CHIP = 5;

/** From this number of slices on, a map has a filter and two sizes. */
export const MANY_SLICES = 25;

/** `chips` draws each slice with its number and large chips; `compact` only a few slices. */
export type Zoom = 'compact' | 'chips';

/** Return the sizes for a map of `count` slices, before any filter: slices keep their size while the user types one. */
export function shapeOf(count: number, zoom: Zoom): IShape {
  return zoom === 'chips' || count < MANY_SLICES ? LARGE : count <= 200 ? MEDIUM : SMALL;
}

/** Place all slices in a grid. All columns are as wide as the widest slice, so that slices line up. */
export function layout(slices: readonly ISlice[], width: number, shape: IShape): ILayout {
  let wide = 1;
  let high = 1;
  for (const slice of slices) {
    const size = sliceSize(slice, shape);
    wide = Math.max(wide, size.width);
    high = Math.max(high, size.height);
  }
  const columns = Math.max(1, Math.floor((width + shape.margin) / (wide + shape.margin)));
  const places = slices.map((slice, index) => ({
    slice,
    x: (index % columns) * (wide + shape.margin),
    y: Math.floor(index / columns) * (high + shape.margin)
  }));
  const rows = Math.ceil(slices.length / columns);
  return {
    columns,
    width: Math.max(wide, Math.min(slices.length, columns) * (wide + shape.margin) - shape.margin),
    height: Math.max(0, rows * (high + shape.margin) - shape.margin),
    shape,
    places
  };
}

/** A few rows of the map, which are drawn together. */
export interface IBand {
  /** Where it begins and ends, halfway between its rows and the next ones. */
  readonly top: number;
  readonly bottom: number;
  readonly places: readonly IPlace[];
}

/** Least number of slices in a band, if there are as many. */
const BAND = 50;

/** Divide a map into bands: what has not changed, or is out of sight, need not be drawn. */
export function bands(drawing: ILayout): readonly IBand[] {
  const { places, columns, height, shape } = drawing;
  const length = Math.ceil(BAND / columns) * columns;
  const divided: IBand[] = [];
  for (let first = 0; first < places.length; first += length) {
    const next = places.at(first + length);
    const top = first ? divided[divided.length - 1].bottom : 0;
    divided.push({
      top,
      bottom: next ? next.y - shape.margin / 2 : height,
      places: places.slice(first, first + length)
    });
  }
  return divided;
}

/** Return the slice to which a key leads from the slice `at`; null for a key that does not move. */
export function moved(key: string, at: number, columns: number, count: number): number | null {
  const steps: { readonly [key: string]: number } = {
    ArrowLeft: -1,
    ArrowRight: 1,
    ArrowUp: -columns,
    ArrowDown: columns
  };
  if (key === 'Home' || key === 'End') {
    return key === 'Home' ? 0 : count - 1;
  }
  if (!(key in steps)) {
    return null;
  }
  const next = at + steps[key];
  return next >= 0 && next < count ? next : at;
}

/** Return the columns and rows of chips on one host. */
function chipGrid(host: Pick<IHost, 'chips'>): { columns: number; rows: number } {
  const columns = Math.max(1, Math.ceil(Math.sqrt(Math.max(1, host.chips))));
  return { columns, rows: Math.max(1, Math.ceil(Math.max(1, host.chips) / columns)) };
}

function hostSize(host: Pick<IHost, 'chips'>, shape: IShape): { width: number; height: number } {
  const { columns, rows } = chipGrid(host);
  return {
    width: columns * (shape.chip + shape.gap) - shape.gap,
    height: rows * (shape.chip + shape.gap) - shape.gap
  };
}

/** Place the hosts of a slice, as close to a square as possible. */
export function hostPlaces(slice: ISlice, shape: IShape): { host: IHost; x: number; y: number }[] {
  const columns = Math.max(1, Math.ceil(Math.sqrt(slice.hosts.length)));
  const size = largest(slice, shape);
  return slice.hosts.map((host, index) => ({
    host,
    x: shape.padding + (index % columns) * (size.width + shape.space),
    y: shape.padding + shape.label + Math.floor(index / columns) * (size.height + shape.space)
  }));
}

export function sliceSize(slice: ISlice, shape: IShape): { width: number; height: number } {
  const count = Math.max(1, slice.hosts.length);
  const columns = Math.max(1, Math.ceil(Math.sqrt(count)));
  const rows = Math.ceil(count / columns);
  const size = largest(slice, shape);
  const hosts = columns * (size.width + shape.space) - shape.space;
  return {
    width: Math.max(hosts, shape.label ? 58 : 0) + 2 * shape.padding,
    height: rows * (size.height + shape.space) - shape.space + 2 * shape.padding + shape.label
  };
}

/**
 * Shape of a chip, which shows its owner without color: `ring` has a hole, `hatched` a diagonal line, and `half` is a
 * triangle: its holder is silent.
 */
export type ChipLook = 'full' | 'ring' | 'hatched' | 'half' | 'hollow';

/** Return a host's chips as one SVG path, to be filled with the even-odd rule. */
export function chipsPath(host: Pick<IHost, 'chips'>, x: number, y: number, shape: IShape, look: ChipLook): string {
  if (shape.chip < SMALLEST_CHIP) {
    const { width, height } = hostSize(host, shape);
    return chipPath(x, y, width, height, look);
  }
  const { columns } = chipGrid(host);
  let path = '';
  for (let chip = 0; chip < Math.max(1, host.chips); chip++) {
    const left = x + (chip % columns) * (shape.chip + shape.gap);
    const top = y + Math.floor(chip / columns) * (shape.chip + shape.gap);
    path += chipPath(left, top, shape.chip, shape.chip, look);
  }
  return path;
}

function chipPath(x: number, y: number, width: number, height: number, look: ChipLook): string {
  if (look === 'half') {
    return `M${x} ${y}v${height}h${width}z`;
  }
  const outline = `M${x} ${y}h${width}v${height}h${-width}z`;
  if (look === 'ring') {
    const inset = Math.max(1, Math.floor(Math.min(width, height) / 3));
    const [wide, high] = [width - 2 * inset, height - 2 * inset];
    return `${outline}M${x + inset} ${y + inset}h${wide}v${high}h${-wide}z`;
  }
  return look === 'hatched' ? `${outline}M${x} ${y + height}l${width} ${-height}` : outline;
}

/** Return a cross over a host, which marks it as down. */
export function crossPath(host: Pick<IHost, 'chips'>, x: number, y: number, shape: IShape): string {
  const { width, height } = hostSize(host, shape);
  return `M${x} ${y}l${width} ${height}M${x + width} ${y}l${-width} ${height}`;
}

function largest(slice: ISlice, shape: IShape): { width: number; height: number } {
  let width = shape.chip;
  let height = shape.chip;
  for (const host of slice.hosts) {
    const size = hostSize(host, shape);
    width = Math.max(width, size.width);
    height = Math.max(height, size.height);
  }
  return { width, height };
}
