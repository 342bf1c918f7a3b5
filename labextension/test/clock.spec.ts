import { Clock, TICK_SECONDS } from '../src/models/clock';

describe('Clock', () => {
  beforeEach(() => jest.useFakeTimers());
  afterEach(() => jest.useRealTimers());

  it('returns the same time to all callers between two ticks', () => {
    const clock = new Clock();
    const first = clock.subscribe(() => undefined);
    const then = clock.now();
    jest.advanceTimersByTime(TICK_SECONDS * 1000 - 1);
    const second = clock.subscribe(() => undefined);
    expect(clock.now()).toBe(then);
    jest.advanceTimersByTime(1);
    expect(clock.now()).toBe(then + TICK_SECONDS);
    first();
    second();
  });

  it('runs only while it has listeners, and is correct when it starts again', () => {
    const clock = new Clock();
    const stop = clock.subscribe(() => undefined);
    expect(jest.getTimerCount()).toBe(1);
    stop();
    expect(jest.getTimerCount()).toBe(0);
    const then = clock.now();
    jest.advanceTimersByTime(60_000);
    clock.subscribe(() => undefined);
    expect(clock.now()).toBe(then + 60);
  });
});
