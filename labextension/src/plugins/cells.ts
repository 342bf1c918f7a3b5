/** Insert a cell into a notebook, and run it: what the sidebar does to a notebook stays in it, and can be repeated. */
import { NotebookActions, NotebookPanel } from '@jupyterlab/notebook';

/** Insert `source` into the active cell if it is empty, otherwise into a new cell below it; show it and make it active. */
export async function insertCell(panel: NotebookPanel, source: string): Promise<void> {
  const notebook = panel.content;
  const active = notebook.activeCell?.model;
  if (!active || active.type !== 'code' || active.sharedModel.getSource().trim()) {
    NotebookActions.insertBelow(notebook);
  }
  // Only the active cell is to be run.
  notebook.deselectAll();
  notebook.activeCell?.model.sharedModel.setSource(source);
  // After the source, which gives the cell its height. It rejects if the cell cannot be drawn, e.g. in a hidden tab.
  await notebook.scrollToItem(notebook.activeCellIndex, 'smart').catch(() => undefined);
}

/** The same, then run the cell: after those that are running. Resolves when it has ended. */
export async function runCell(panel: NotebookPanel, source: string): Promise<void> {
  const shown = insertCell(panel, source);
  await NotebookActions.run(panel.content, panel.sessionContext);
  await shown;
}
