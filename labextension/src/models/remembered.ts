/** A value of the page that JupyterLab's state database remembers, for React's useSyncExternalStore. */
import { ReadonlyPartialJSONObject } from '@lumino/coreutils';

/** The part of JupyterLab's state database that is used here. */
export interface IStore {
  fetch(id: string): Promise<unknown>;
  save(id: string, value: ReadonlyPartialJSONObject): Promise<unknown>;
}

export class Remembered<T extends ReadonlyPartialJSONObject> {
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
