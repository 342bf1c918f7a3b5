/** Adds the panel to the sidebar. */
import { ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IStateDB } from '@jupyterlab/statedb';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { ReactWidget } from '@jupyterlab/ui-components';
import { Message } from '@lumino/messaging';
import * as React from 'react';

import { IActions } from '../components/actions';
import { Panel } from '../components/Panel';
import { ITrans } from '../models/trans';
import { pathwaysIcon } from '../icon';
import { CommandIDs, DOMAIN, IPathways, PANEL_ID } from '../tokens';

const FOLDED = 'pathways-jupyter:folded';

export const sidebar: JupyterFrontEndPlugin<void> = {
  id: 'pathways-jupyter:sidebar',
  description: 'Show sessions, slices, events, services and jobs in the sidebar.',
  autoStart: true,
  requires: [IPathways],
  optional: [ILayoutRestorer, IStateDB, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    pathways: IPathways,
    restorer: ILayoutRestorer | null,
    state: IStateDB | null,
    translator: ITranslator | null
  ) => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const run = (command: string, args: { [name: string]: string } = {}) => void app.commands.execute(command, args);
    const actions: IActions = {
      connect: () => run(CommandIDs.connect),
      disconnect: session => run(CommandIDs.disconnect, { session: session.id }),
      reconnect: session => run(CommandIDs.reconnect, { session: session.id }),
      openLog: (pod, title) => run(CommandIDs.openLog, { pod, title }),
      showJob: job => run(CommandIDs.showJob, { job: job.name }),
      openJobLog: job => run(CommandIDs.openLog, { job: job.name }),
      actOnJob: (job, action) => run(JOB_COMMANDS[action], { job: job.name }),
      sweep: () => run(CommandIDs.sweep),
      quickstart: () => run(CommandIDs.quickstart),
      retry: () => run(CommandIDs.retry)
    };
    const panel = new PanelWidget(pathways, actions, trans, state);
    panel.id = PANEL_ID;
    panel.title.icon = pathwaysIcon;
    panel.title.caption = trans.__('Pathways: slices, sessions and events');
    panel.node.setAttribute('role', 'region');
    panel.node.setAttribute('aria-label', trans.__('Pathways'));
    app.shell.add(panel, 'left', { rank: 350, type: 'Pathways' });
    restorer?.add(panel, PANEL_ID);
    app.commands.addCommand(CommandIDs.showPanel, {
      label: trans.__('Show Pathways'),
      icon: pathwaysIcon,
      describedBy: { args: { type: 'object', properties: {} } },
      execute: () => app.shell.activateById(PANEL_ID)
    });
  }
};

const JOB_COMMANDS = {
  suspend: CommandIDs.suspendJob,
  resume: CommandIDs.resumeJob,
  delete: CommandIDs.deleteJob
} as const;

/** The panel. It has the server watch the cluster only while it is visible. */
class PanelWidget extends ReactWidget {
  constructor(
    private readonly _pathways: IPathways,
    private readonly _actions: IActions,
    private readonly _trans: ITrans,
    private readonly _state: IStateDB | null
  ) {
    super();
    this.addClass('jp-Pathways');
    document.addEventListener('visibilitychange', this._look);
    void this._state?.fetch(FOLDED).then(value => {
      if (Array.isArray(value) && value.length) {
        this._folded = value.map(String);
        this._generation++;
        this.update();
      }
    });
  }

  override dispose(): void {
    document.removeEventListener('visibilitychange', this._look);
    super.dispose();
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this._look();
  }

  protected override onAfterHide(message: Message): void {
    super.onAfterHide(message);
    this._look();
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    this._look();
  }

  protected override onActivateRequest(message: Message): void {
    super.onActivateRequest(message);
    this.node.querySelector<HTMLElement>('button')?.focus();
  }

  protected override render(): React.JSX.Element {
    return React.createElement(Panel, {
      key: this._generation,
      model: this._pathways.model,
      actions: this._actions,
      trans: this._trans,
      folded: this._folded,
      onFolded: folded => void this._state?.save(FOLDED, [...folded])
    });
  }

  private readonly _look = () => this._pathways.setLooking(this.isVisible && !document.hidden);
  private _folded: readonly string[] = ['jobs'];
  private _generation = 0;
}
