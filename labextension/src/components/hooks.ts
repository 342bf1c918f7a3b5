/** React hooks for the model, the clock and element sizes; and what spares a component from rendering. */
import * as React from 'react';

import { pageClock } from '../models/clock';
import { Facet, Model } from '../models/model';

/** Render the component when one of `facets` changes, at most once a frame. */
export function useModel(model: Model, ...facets: Facet[]): void {
  const [, draw] = React.useReducer((count: number) => count + 1, 0);
  // A string, because the list of facets is a new array in each render.
  const wanted = facets.join();
  React.useEffect(() => {
    let frame = 0;
    const follow = (_: Model, facet: Facet) => {
      if (!frame && wanted.split(',').includes(facet)) {
        frame = requestAnimationFrame(() => {
          frame = 0;
          draw();
        });
      }
    };
    model.changed.connect(follow);
    // The model may have changed between the first render and this effect.
    draw();
    return () => {
      model.changed.disconnect(follow);
      cancelAnimationFrame(frame);
    };
  }, [model, wanted]);
}

/** Read one plain value of the model; the component renders only when it changes. */
export function useModelValue<T extends string | number | boolean | null>(model: Model, read: (model: Model) => T): T {
  const subscribe = React.useCallback(
    (listener: () => void) => {
      model.changed.connect(listener);
      return () => void model.changed.disconnect(listener);
    },
    [model]
  );
  return React.useSyncExternalStore(subscribe, () => read(model));
}

/** The time of the page's clock, in seconds; all components read the same instant. */
export function useNow(): number {
  return React.useSyncExternalStore(pageClock.subscribe, pageClock.now);
}

/** The width of an element in pixels; `first` until it is measured. */
export function useWidth(element: React.RefObject<HTMLElement>, first: number): number {
  const [width, setWidth] = React.useState(first);
  React.useLayoutEffect(() => {
    const target = element.current;
    if (!target || typeof ResizeObserver === 'undefined') {
      return;
    }
    const observer = new ResizeObserver(entries => {
      const seen = Math.floor(entries[entries.length - 1].contentRect.width);
      if (seen > 0) {
        setWidth(seen);
      }
    });
    observer.observe(target);
    return () => observer.disconnect();
  }, [element]);
  return width;
}

/** Whether two values of props are the same, for a component that renders only when one of them changes. */
export function isSame<T>(one: T, other: T, ...names: (keyof T)[]): boolean {
  return names.every(name => one[name] === other[name]);
}
