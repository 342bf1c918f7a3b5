/** How the user looks at the panel: which sections are folded, and how slices are drawn. JupyterLab remembers it. */
import { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import { Zoom } from './layout';

/** The part of JupyterLab's state database that is used here. */
export interface IStore {
  fetch(id: string): Promise<unknown>;
  save(id: string, value: ReadonlyPartialJSONObject): Promise<unknown>;
}

/** A value of the page that JupyterLab's state database remembers, for React's useSyncExternalStore. */
class Remembered<T extends ReadonlyPartialJSONObject> {
  /** @param restored Parses what was saved; what is missing or of the wrong type is as at first. */
  constructor(
    private readonly _store: IStore | null,
    private readonly _key: string,
    private readonly _first: T,
    restored: (saved: unknown) => T
  ) {
    this._value = _first;
    // Without an answer, the value is as at first.
    _store?.fetch(_key).then(
      saved => {
        // The user may have been faster than the server.
        if (this._value === this._first) {
          this._value = restored(saved);
          this._listeners.forEach(listener => listener());
        }
      },
      () => undefined
    );
  }

  readonly value = (): T => this._value;

  /** Call `listener` after each change; returns a function that unsubscribes. */
  readonly subscribe = (listener: () => void): (() => void) => {
    this._listeners.add(listener);
    return () => void this._listeners.delete(listener);
  };

  readonly set = (some: Partial<T>): void => {
    this._value = { ...this._value, ...some };
    this._listeners.forEach(listener => listener());
    void this._store?.save(this._key, this._value);
  };

  private _value: T;
  private readonly _listeners = new Set<() => void>();
}

export type IFolding = {
  /** Names of the folded sections. */
  readonly folded: readonly string[];
};

/** What a researcher reads most is open. */
const FIRST: IFolding = { folded: ['services'] };

/** Which sections of the panel the user has folded. */
export class Folding extends Remembered<IFolding> {
  constructor(store: IStore | null) {
    super(store, 'pathways-jupyter:sections', FIRST, foldingOf);
  }

  readonly toggle = (name: string): void => {
    const { folded } = this.value();
    this.set({ folded: folded.includes(name) ? folded.filter(each => each !== name) : [...folded, name] });
  };
}

function foldingOf(saved: unknown): IFolding {
  const { folded } = (saved ?? {}) as Partial<Record<keyof IFolding, unknown>>;
  return Array.isArray(folded) ? { folded: folded.map(String) } : FIRST;
}

export type ISliceView = {
  readonly list: boolean;
  readonly zoom: Zoom;
  readonly filter: string;
};

/** How the user looks at the slices: map or list, size and filter. */
export class SliceView extends Remembered<ISliceView> {
  constructor(store: IStore | null) {
    super(store, 'pathways-jupyter:slices', { list: false, zoom: 'compact', filter: '' }, sliceViewOf);
  }
}

function sliceViewOf(saved: unknown): ISliceView {
  const { list, zoom, filter } = (saved ?? {}) as Partial<Record<keyof ISliceView, unknown>>;
  return {
    list: list === true,
    zoom: zoom === 'chips' ? 'chips' : 'compact',
    filter: typeof filter === 'string' ? filter : ''
  };
}
