/** A section of the Running panel: the sessions on this machine, each with a button that disconnects it. */
import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IRunningSessionManagers, IRunningSessions } from '@jupyterlab/running';
import { Signal } from '@lumino/signaling';

import { sessionName } from '../models/sessions';
import { instancesWord } from '../models/words';
import { pathwaysIcon } from '../icon';
import { CommandIDs, IPathways } from '../tokens';

export const running: JupyterFrontEndPlugin<void> = {
  id: 'pathways-jupyter:running',
  description: 'List Pathways sessions in the Running panel.',
  autoStart: true,
  requires: [IPathways],
  // Notebook 7 has them only on its first page.
  optional: [IRunningSessionManagers],
  activate: (app: JupyterFrontEnd, { model, trans }: IPathways, managers: IRunningSessionManagers | null) => {
    const end = (session: string, confirmed = false) =>
      void app.commands.execute(CommandIDs.disconnect, { session, confirmed });
    const changed = new Signal<object, void>(model);
    model.changed.connect((_, facet) => facet === 'sessions' && changed.emit());
    managers?.add({
      name: trans.__('Pathways sessions'),
      supportsMultipleViews: false,
      running: (): IRunningSessions.IRunningItem[] =>
        model.sessions.map(session => ({
          icon: () => pathwaysIcon,
          label: () => sessionName(session),
          labelTitle: () => trans.__('Session %1: %2', session.id, instancesWord(session.instances)),
          detail: () => session.word,
          open: () => void app.commands.execute(CommandIDs.showPanel),
          shutdown: () => end(session.id)
        })),
      refreshRunning: () => undefined,
      runningChanged: changed,
      shutdownLabel: trans.__('Disconnect'),
      // JupyterLab has asked for confirmation already.
      shutdownAll: () => model.sessions.forEach(session => end(session.id, true)),
      shutdownAllLabel: trans.__('Disconnect all'),
      shutdownAllConfirmationText: trans.__('Disconnect every Pathways session on this machine?')
    });
  }
};
