import * as React from 'react';
import { renderToStaticMarkup } from 'react-dom/server';

import { Replay } from '../src/components/Replay';
import { IMoment } from '../src/models/history';
import { english } from '../src/models/trans';

const MOMENTS: readonly IMoment[] = [100.4, 160.2].map(at => ({ at, seen: true, services: [], slices: [] }) as never);

/** Return an attribute of the slider. */
function slider(at: number | null, attribute: string, now = 200.2): string | undefined {
  const html = renderToStaticMarkup(
    <Replay moments={MOMENTS} at={at} now={now} onMove={() => undefined} trans={english} />
  );
  return new RegExp(`<input[^>]* ${attribute}="([^"]*)"`).exec(html)?.[1];
}

describe('Replay', () => {
  it('has its thumb at the end while it shows the present', () => {
    expect(slider(null, 'value')).toBe(slider(null, 'max'));
    expect(slider(null, 'aria-valuetext')).toBe('now');
  });

  it('has its thumb at the end also while the page’s clock is behind the first moment', () => {
    expect([slider(null, 'min', 99), slider(null, 'value', 99), slider(null, 'max', 99)]).toEqual([
      '100',
      '161',
      '161'
    ]);
  });

  it('has its thumb at the time that it shows', () => {
    expect(slider(160.2, 'value')).toBe('160');
    expect(slider(160.2, 'max')).toBe('201');
  });
});
