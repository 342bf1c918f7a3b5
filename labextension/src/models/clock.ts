/**
 * One clock for all ages on the page. With a timer in each view, two views showed different ages for the same instant
 * ("15 s" beside "2 s").
 */

/** Seconds between two updates of the ages. */
export const TICK_SECONDS = 5;

export class Clock {
  /** Return the time of the last tick, in seconds since the epoch. */
  readonly now = (): number => this._now;

  /** Call `listener` on each tick; returns a function that unsubscribes. The timer runs only while there are listeners. */
  readonly subscribe = (listener: () => void): (() => void) => {
    if (!this._listeners.size) {
      this._now = seconds();
      this._timer = setInterval(() => this._tick(), TICK_SECONDS * 1000);
    }
    this._listeners.add(listener);
    return () => {
      this._listeners.delete(listener);
      if (!this._listeners.size) {
        clearInterval(this._timer);
      }
    };
  };

  private _tick(): void {
    this._now = seconds();
    this._listeners.forEach(listener => listener());
  }

  private _now = seconds();
  private _timer: ReturnType<typeof setInterval> | undefined;
  private readonly _listeners = new Set<() => void>();
}

export const pageClock = new Clock();

function seconds(): number {
  return Date.now() / 1000;
}
