/**
 * The sidebar's pictures in a notebook, for anywidget: one module for both, told apart by the model's `picture`.
 * Built into pathways_jupyter/widgets/static by scripts/build-widgets.mjs.
 */
import * as React from 'react';
import { createRoot } from 'react-dom/client';

import { SliceLegend, SliceMap } from '../components/SliceMap';
import { SliceTable } from '../components/SliceTable';
import { Timeline } from '../components/Timeline';
import { english } from '../models/trans';
import { IEvent, ISlice } from '../models/wire';

/** As much of anywidget's model as is used here. */
interface IWidgetModel {
  get(name: string): unknown;
  on(event: string, call: () => void): void;
  off(event: string, call: () => void): void;
}

const WIDTH = 640;

function picture(model: IWidgetModel): React.ReactElement {
  const note = String(model.get('note') ?? '');
  const children =
    model.get('picture') === 'events'
      ? [React.createElement(Timeline, { key: 'events', events: model.get('rows') as IEvent[], trans: english })]
      : slices(model.get('rows') as ISlice[]);
  return React.createElement(
    React.Fragment,
    null,
    ...children,
    note && React.createElement('p', { key: 'note', className: 'pw-muted', role: 'status' }, note)
  );
}

function slices(rows: ISlice[]): React.ReactElement[] {
  return [
    React.createElement(SliceMap, { key: 'map', slices: rows, trans: english, width: WIDTH }),
    React.createElement(
      'div',
      { key: 'table', className: 'pw-unseen' },
      React.createElement(SliceTable, { slices: rows, trans: english, now: Date.now() / 1000 })
    ),
    React.createElement(SliceLegend, { key: 'legend', trans: english })
  ];
}

function render({ model, el }: { model: IWidgetModel; el: HTMLElement }): () => void {
  el.classList.add('jp-Pathways');
  const root = createRoot(el);
  const draw = () => root.render(picture(model));
  for (const name of ['rows', 'note']) {
    model.on(`change:${name}`, draw);
  }
  draw();
  return () => {
    for (const name of ['rows', 'note']) {
      model.off(`change:${name}`, draw);
    }
    root.unmount();
  };
}

export default { render };
