/**
 * One clock for everything on the page that shows an age. Views that had a timer each disagreed on one screen: "for 15 s"
 * stood beside "for 2 s" for the same instant.
 */

/** How often ages are drawn again. */
export const TICK_SECONDS = 5;

export class Clock {
  /** Seconds since the epoch at the last tick; the same for all who ask until the next one. */
  readonly now = (): number => this._now;

  /** Calls `listener` on each tick. Returns a function that ends this; the timer runs only while there are listeners. */
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
