/** How the user looks at the slices: map or list, size and filter. Remembered with the page's layout. */
import { Zoom } from './layout';

/** From this number of slices on, a map has a filter and two sizes. */
export const MANY_SLICES = 25;

export interface ISliceView {
  readonly list: boolean;
  readonly zoom: Zoom;
  readonly filter: string;
}

const FIRST: ISliceView = { list: false, zoom: 'compact', filter: '' };
const KEY = 'pathways-jupyter:slices';

/** The part of JupyterLab's state database that is used here. */
export interface IStore {
  fetch(id: string): Promise<unknown>;
  save(id: string, value: { readonly [name: string]: string | boolean }): Promise<unknown>;
}

export class SliceView {
  constructor(private readonly _store: IStore | null) {
    const restore = (saved: unknown) => {
      // The user may have been faster than the server.
      if (this._value === FIRST) {
        this._value = restored(saved);
        this._listeners.forEach(listener => listener());
      }
    };
    // Without an answer, the view is as at first.
    _store?.fetch(KEY).then(restore, () => undefined);
  }

  readonly value = (): ISliceView => this._value;

  /** Call `listener` after each change; returns a function that unsubscribes. */
  readonly subscribe = (listener: () => void): (() => void) => {
    this._listeners.add(listener);
    return () => void this._listeners.delete(listener);
  };

  readonly set = (some: Partial<ISliceView>): void => {
    this._value = { ...this._value, ...some };
    this._listeners.forEach(listener => listener());
    void this._store?.save(KEY, { ...this._value });
  };

  private _value = FIRST;
  private readonly _listeners = new Set<() => void>();
}

/** Parse a saved view; what is missing or of the wrong type is as at first. */
function restored(saved: unknown): ISliceView {
  const { list, zoom, filter } = (saved ?? {}) as Partial<Record<keyof ISliceView, unknown>>;
  return {
    list: list === true,
    zoom: zoom === 'chips' ? 'chips' : 'compact',
    filter: typeof filter === 'string' ? filter : ''
  };
}
