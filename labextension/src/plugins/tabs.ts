/**
 * Tabs for logs, jobs and profiles. Notebook 7 shows one document a page: what is added to its main area is never shown, so that
 * tabs are below the document there.
 */
import { ILabShell, JupyterFrontEnd } from '@jupyterlab/application';
import { MainAreaWidget } from '@jupyterlab/apputils';
import { Widget } from '@lumino/widgets';

import { pathwaysIcon } from '../icon';

const AREA_OF_NOTEBOOK_7 = 'down';

/** Show the tab with this id; returns false if there is none. */
export function showAgain(app: JupyterFrontEnd, lab: ILabShell | null, id: string): boolean {
  const open = [...app.shell.widgets(area(lab))].some(widget => widget.id === id);
  if (open) {
    app.shell.activateById(id);
  }
  return open;
}

/** Open a tab with this content, and return it. */
export function openTab(
  app: JupyterFrontEnd,
  lab: ILabShell | null,
  id: string,
  label: string,
  content: Widget
): MainAreaWidget {
  content.addClass('jp-Pathways');
  const widget = new MainAreaWidget({ content });
  widget.id = id;
  widget.title.label = label;
  widget.title.icon = pathwaysIcon;
  app.shell.add(widget, area(lab));
  app.shell.activateById(id);
  return widget;
}

function area(lab: ILabShell | null): string {
  return lab ? 'main' : AREA_OF_NOTEBOOK_7;
}
