/** How the user looks at the panel: which sections are folded, and how slices are drawn. JupyterLab remembers it. */
import { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import { Zoom } from './layout';

/** The part of JupyterLab's state database that is used here. */
export interface IStore {
  fetch(id: string): Promise<unknown>;
  save(id: string, value: ReadonlyPartialJSONObject): Promise<unknown>;
}

export type IPanelView = {
  /** Names of the folded sections. */
  readonly folded: readonly string[];
  /** Whether slices are listed, instead of drawn as a map. */
  readonly list: boolean;
  readonly zoom: Zoom;
  readonly filter: string;
};

/** What a researcher reads most is open. */
const FIRST: IPanelView = { folded: ['services'], list: false, zoom: 'compact', filter: '' };

const KEY = 'pathways-jupyter:panel';

/** The user's view of the panel, for React's useSyncExternalStore. */
export class PanelView {
  constructor(private readonly _store: IStore | null) {
    // Without an answer, it is as at first.
    _store?.fetch(KEY).then(
      saved => {
        // The user may have been faster than the server.
        if (this._value === FIRST) {
          this._value = restored(saved);
          this._listeners.forEach(listener => listener());
        }
      },
      () => undefined
    );
  }

  readonly value = (): IPanelView => this._value;

  /** Call `listener` after each change; returns a function that unsubscribes. */
  readonly subscribe = (listener: () => void): (() => void) => {
    this._listeners.add(listener);
    return () => void this._listeners.delete(listener);
  };

  readonly set = (some: Partial<IPanelView>): void => {
    this._value = { ...this._value, ...some };
    this._listeners.forEach(listener => listener());
    void this._store?.save(KEY, this._value);
  };

  /** Fold a section, or unfold it. */
  readonly toggle = (name: string): void => {
    const { folded } = this._value;
    this.set({ folded: folded.includes(name) ? folded.filter(each => each !== name) : [...folded, name] });
  };

  private _value = FIRST;
  private readonly _listeners = new Set<() => void>();
}

/** Parse what was saved; what is missing or of the wrong type is as at first. */
function restored(saved: unknown): IPanelView {
  const { folded, list, zoom, filter } = (saved ?? {}) as Partial<Record<keyof IPanelView, unknown>>;
  return {
    folded: Array.isArray(folded) ? folded.map(String) : FIRST.folded,
    list: list === true,
    zoom: zoom === 'chips' ? 'chips' : 'compact',
    filter: typeof filter === 'string' ? filter : ''
  };
}
