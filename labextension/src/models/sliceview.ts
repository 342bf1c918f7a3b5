/** How the user looks at the slices: map or list, size and filter. Remembered with the page's layout. */
import { Zoom } from './layout';
import { IStore, Remembered } from './remembered';

/** From this number of slices on, a map has a filter and two sizes. */
export const MANY_SLICES = 25;

export type ISliceView = {
  readonly list: boolean;
  readonly zoom: Zoom;
  readonly filter: string;
};

export class SliceView extends Remembered<ISliceView> {
  constructor(store: IStore | null) {
    super(store, 'pathways-jupyter:slices', { list: false, zoom: 'compact', filter: '' }, restored);
  }
}

function restored(saved: unknown): ISliceView {
  const { list, zoom, filter } = (saved ?? {}) as Partial<Record<keyof ISliceView, unknown>>;
  return {
    list: list === true,
    zoom: zoom === 'chips' ? 'chips' : 'compact',
    filter: typeof filter === 'string' ? filter : ''
  };
}
