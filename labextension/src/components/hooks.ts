/** How a view follows a model and the clock. */
import * as React from 'react';

import { Facet, Model } from '../models/model';

/** Draws the calling view again whenever one of `facets` changed, at most once a frame. */
export function useModel(model: Model, ...facets: Facet[]): void {
  const [, draw] = React.useReducer((count: number) => count + 1, 0);
  const wanted = facets.join();
  React.useEffect(() => {
    let frame = 0;
    const follow = (_: Model, facet: Facet) => {
      if (wanted.includes(facet) && !frame) {
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

/** Seconds since the epoch, told anew every `seconds` while the view is shown. */
export function useNow(seconds: number): number {
  const [now, setNow] = React.useState(() => Date.now() / 1000);
  React.useEffect(() => {
    const timer = setInterval(() => setNow(Date.now() / 1000), seconds * 1000);
    return () => clearInterval(timer);
  }, [seconds]);
  return now;
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
