/** How a view follows a model and the clock. */
import * as React from 'react';

import { pageClock } from '../models/clock';
import { Facet, Model } from '../models/model';

/** Draws the calling view again whenever one of `facets` changed, at most once a frame. */
export function useModel(model: Model, ...facets: Facet[]): void {
  const [, draw] = React.useReducer((count: number) => count + 1, 0);
  const wanted = useSame(facets);
  React.useEffect(() => {
    let frame = 0;
    const follow = (_: Model, facet: Facet) => {
      if (!frame && wanted.includes(facet)) {
        frame = requestAnimationFrame(() => {
          frame = 0;
          draw();
        });
      }
    };
    model.changed.connect(follow);
    // Something may have changed between the first drawing and now.
    draw();
    return () => {
      model.changed.disconnect(follow);
      cancelAnimationFrame(frame);
    };
  }, [model, wanted]);
}

/** One plain value of the model: the calling view is drawn again only when it differs. */
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

/** The page's one clock: ages in different sections agree because all views read the same instant. */
export function useNow(): number {
  return React.useSyncExternalStore(pageClock.subscribe, pageClock.now);
}

/** The first list that was equal to `list`, so that an effect can depend on it. */
function useSame<T extends string>(list: readonly T[]): readonly T[] {
  const kept = React.useRef(list);
  if (kept.current.join() !== list.join()) {
    kept.current = list;
  }
  return kept.current;
}

/** The width of an element that a view has drawn. */
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
