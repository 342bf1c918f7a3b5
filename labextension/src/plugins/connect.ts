/** The connect dialog. It inserts the equivalent `%pathways connect` cell into the notebook. */
import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Dialog, Notification } from '@jupyterlab/apputils';
import { INotebookTracker, NotebookActions, NotebookPanel } from '@jupyterlab/notebook';
import { ReactWidget } from '@jupyterlab/ui-components';
import { MessageLoop } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';
import * as React from 'react';

import { ConnectForm } from '../components/ConnectForm';
import { baseName } from '../models/holdings';
import { connectCell, IChoice, jobConnectCell } from '../models/line';
import { refusal } from '../models/words';
import { pathwaysIcon } from '../icon';
import { CommandIDs, IPathways, WITHOUT_ARGS } from '../tokens';

const INSERT = 'insert';
/** How long it is shown why a notebook cannot be connected. */
const REFUSAL_MILLISECONDS = 8000;

const CONNECT_ARGS = {
  type: 'object',
  properties: { wait: { type: 'boolean', description: 'Whether to wait for slices that are taken' } }
} as const;

const JOB_ARGS = {
  type: 'object',
  properties: { job: { type: 'string', description: 'Name of a headless job in the cluster in view' } },
  required: ['job']
} as const;

export const connect: JupyterFrontEndPlugin<void> = {
  id: 'pathways-jupyter:connect',
  description: 'Connect a notebook with a dialog.',
  autoStart: true,
  requires: [IPathways],
  optional: [INotebookTracker],
  activate: (app: JupyterFrontEnd, pathways: IPathways, notebooks: INotebookTracker | null) => {
    const { model, trans } = pathways;
    const ask = async (run: boolean, wait = false) => {
      const panel = notebooks?.currentWidget;
      if (!panel) {
        return;
      }
      const choice = await dialog(pathways, run, wait);
      if (choice) {
        await (choice.run ? runCell : insertCell)(panel, connectCell(choice.choice));
      }
    };
    const connectJob = async (job: string) => {
      const panel = notebooks?.currentWidget ?? null;
      const refused = refusal(trans, panel, model.session);
      if (refused || !panel) {
        Notification.warning(`${refused?.message} ${refused?.hint}`, { autoClose: REFUSAL_MILLISECONDS });
        return;
      }
      const cell = model.cluster?.named && jobConnectCell(model.cluster.named, job, model.place?.cluster);
      if (!cell) {
        Notification.warning(
          trans.__('The cluster of job %1 has no context in the kubeconfig of the Jupyter server.', job),
          { autoClose: REFUSAL_MILLISECONDS }
        );
        return;
      }
      await runCell(panel, cell);
    };
    const isEnabled = () => !!notebooks?.currentWidget;
    app.commands.addCommand(CommandIDs.connect, {
      label: trans.__('Connect This Notebook to TPUs…'),
      icon: pathwaysIcon,
      describedBy: { args: CONNECT_ARGS },
      isEnabled,
      execute: args => ask(true, args.wait === true)
    });
    app.commands.addCommand(CommandIDs.insertConnect, {
      label: trans.__('Insert a Connect Cell…'),
      describedBy: WITHOUT_ARGS,
      isEnabled,
      execute: () => ask(false)
    });
    app.commands.addCommand(CommandIDs.connectJob, {
      label: trans.__('Connect This Notebook to a Job'),
      describedBy: { args: JOB_ARGS },
      execute: args => connectJob(args.job as string)
    });
    notebooks?.currentChanged.connect(() => app.commands.notifyCommandChanged(CommandIDs.connect));
  }
};

class Body extends ReactWidget {
  constructor(
    private readonly _pathways: IPathways,
    wait: boolean
  ) {
    super();
    this.addClass('jp-Pathways');
    const { model, scope } = _pathways;
    const { context, namespace, kernel, local } = scope;
    const beside = model.place?.cluster ?? '';
    const slices = { service: '', instanceType: '', count: 1 };
    this.choice = { local, context, namespace, kernel, ...slices, profile: '', wait, beside };
  }

  choice: IChoice;
  /** Called after each render of the form. */
  rendered: () => void = () => undefined;

  /**
   * Render the form before the dialog is attached. The dialog looks for its first field at that moment; without one,
   * its focus trap would contain only the buttons.
   */
  async prepare(): Promise<void> {
    MessageLoop.sendMessage(this, Widget.Msg.UpdateRequest);
    await this.renderPromise;
  }

  getValue(): IChoice {
    return this.choice;
  }

  protected override render(): React.JSX.Element {
    return React.createElement(ConnectForm, {
      api: this._pathways.api,
      trans: this._pathways.trans,
      first: this.choice,
      onChange: choice => {
        this.choice = choice;
      },
      onRendered: () => this.rendered()
    });
  }
}

async function dialog(
  pathways: IPathways,
  run: boolean,
  wait: boolean
): Promise<{ choice: IChoice; run: boolean } | null> {
  const { model, trans } = pathways;
  const cancel = Dialog.cancelButton({ label: trans.__('Cancel') });
  const insertButton = Dialog.okButton({
    label: trans.__('Insert cell'),
    actions: [INSERT],
    className: run ? 'pw-second' : ''
  });
  const connectButton = Dialog.okButton({ label: trans.__('Connect') });
  const body = new Body(pathways, wait);
  const { front } = model;
  const shown = new Dialog<IChoice>({
    title: front ? trans.__('Connect %1 to TPUs', baseName(front.path)) : trans.__('Connect this notebook to TPUs'),
    body,
    buttons: run ? [cancel, insertButton, connectButton] : [cancel, insertButton],
    focusNodeSelector: 'select, input'
  });
  // JupyterLab validates a dialog's fields on input events only, but these also change when the cluster answers or fails.
  const check = () => void shown.node.dispatchEvent(new Event('input', { bubbles: true }));
  body.rendered = check;
  // Render after the Dialog is constructed: its constructor wraps every select, which would detach them from React.
  await body.prepare();
  void shown.ready.then(check);
  const result = await shown.launch();
  if (!result.button.accept || !result.value) {
    return null;
  }
  return { choice: result.value, run: !result.button.actions.includes(INSERT) };
}

/** Insert `source` into the active cell if it is empty, otherwise into a new cell below it; show it and make it active. */
async function insertCell(panel: NotebookPanel, source: string): Promise<void> {
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
async function runCell(panel: NotebookPanel, source: string): Promise<void> {
  const shown = insertCell(panel, source);
  await NotebookActions.run(panel.content, panel.sessionContext);
  await shown;
}
