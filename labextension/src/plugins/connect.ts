/** The connect dialog, and what it leaves in the notebook: a cell that does the same. */
import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Dialog } from '@jupyterlab/apputils';
import { INotebookTracker, NotebookActions, NotebookPanel } from '@jupyterlab/notebook';
import { ITranslator, nullTranslator, TranslationBundle } from '@jupyterlab/translation';
import { ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';

import { ConnectForm } from '../components/ConnectForm';
import { connectCell, IChoice, missing } from '../models/line';
import { pathwaysIcon } from '../icon';
import { CommandIDs, DOMAIN, IPathways } from '../tokens';

const INSERT = 'insert';

export const connect: JupyterFrontEndPlugin<void> = {
  id: 'pathways-jupyter:connect',
  description: 'Connects a notebook through a dialog.',
  autoStart: true,
  requires: [IPathways, INotebookTracker],
  optional: [ITranslator],
  activate: (app: JupyterFrontEnd, pathways: IPathways, notebooks: INotebookTracker, translator: ITranslator | null) => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const ask = async (run: boolean) => {
      const panel = notebooks.currentWidget;
      if (!panel) {
        return;
      }
      const choice = await dialog(pathways, trans, run);
      if (choice) {
        insert(panel, connectCell(choice.choice));
        if (choice.run) {
          await NotebookActions.run(panel.content, panel.sessionContext);
        }
      }
    };
    const isEnabled = () => !!notebooks.currentWidget;
    const describedBy = { args: { type: 'object', properties: {} } } as const;
    app.commands.addCommand(CommandIDs.connect, {
      label: trans.__('Connect This Notebook to TPUs…'),
      icon: pathwaysIcon,
      describedBy,
      isEnabled,
      execute: () => ask(true)
    });
    app.commands.addCommand(CommandIDs.insertConnect, {
      label: trans.__('Insert a Cell That Connects…'),
      describedBy,
      isEnabled,
      execute: () => ask(false)
    });
    notebooks.currentChanged.connect(() => app.commands.notifyCommandChanged(CommandIDs.connect));
  }
};

class Body extends ReactWidget {
  constructor(
    private readonly _pathways: IPathways,
    private readonly _trans: TranslationBundle
  ) {
    super();
    this.addClass('jp-Pathways');
    const { context, namespace, local } = _pathways.scope;
    this.choice = { local, context, namespace, service: '', instanceType: '', count: 1, profile: '', wait: false };
  }

  choice: IChoice;

  getValue(): IChoice {
    return this.choice;
  }

  protected override render(): JSX.Element {
    return React.createElement(ConnectForm, {
      api: this._pathways.api,
      trans: this._trans,
      first: this.choice,
      onChange: choice => {
        this.choice = choice;
      }
    });
  }
}

async function dialog(
  pathways: IPathways,
  trans: TranslationBundle,
  run: boolean
): Promise<{ choice: IChoice; run: boolean } | null> {
  const cancel = Dialog.cancelButton({ label: trans.__('Cancel') });
  const insertButton = Dialog.okButton({ label: trans.__('Insert cell'), actions: [INSERT] });
  const connectButton = Dialog.okButton({ label: trans.__('Connect') });
  const shown = new Dialog<IChoice>({
    title: trans.__('Connect this notebook to TPUs'),
    body: new Body(pathways, trans),
    buttons: run ? [cancel, insertButton, connectButton] : [cancel, insertButton]
  });
  const result = await shown.launch();
  if (!result.button.accept || !result.value || missing(result.value)) {
    return null;
  }
  return { choice: result.value, run: !result.button.actions.includes(INSERT) };
}

/** Into the active cell when that is empty, else into a new one below it. */
function insert(panel: NotebookPanel, source: string): void {
  const notebook = panel.content;
  const active = notebook.activeCell?.model;
  if (!active || active.type !== 'code' || active.sharedModel.getSource().trim()) {
    NotebookActions.insertBelow(notebook);
  }
  notebook.activeCell?.model.sharedModel.setSource(source);
}
