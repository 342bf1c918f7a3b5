/**
 * Tabs for logs and jobs. Notebook 7 shows one document a page: what is added to its main area is never shown, so that
 * tabs are below the document there.
 */
import { ILabShell, JupyterFrontEnd } from '@jupyterlab/application';
import { Widget } from '@lumino/widgets';

const AREA_OF_NOTEBOOK_7 = 'down';

/** Show the tab with this id; returns false if there is none. */
export function showAgain(app: JupyterFrontEnd, lab: ILabShell | null, id: string): boolean {
  const open = [...app.shell.widgets(area(lab))].some(widget => widget.id === id);
  if (open) {
    app.shell.activateById(id);
  }
  return open;
}

export function showTab(app: JupyterFrontEnd, lab: ILabShell | null, widget: Widget): void {
  app.shell.add(widget, area(lab));
  app.shell.activateById(widget.id);
}

function area(lab: ILabShell | null): string {
  return lab ? 'main' : AREA_OF_NOTEBOOK_7;
}
