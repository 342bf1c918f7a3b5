/** A launcher card that opens the quickstart notebook. */
import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ILauncher } from '@jupyterlab/launcher';

import { iconUrl, pathwaysIcon } from '../icon';
import { CommandIDs, IPathways, WITHOUT_ARGS } from '../tokens';
import { notifyFailure, succeeded } from './notify';

export const launcher: JupyterFrontEndPlugin<void> = {
  id: 'pathways-jupyter:launcher',
  description: 'Open the quickstart notebook from the launcher.',
  autoStart: true,
  requires: [IPathways],
  optional: [ILauncher],
  activate: (app: JupyterFrontEnd, { api, trans }: IPathways, cards: ILauncher | null) => {
    app.commands.addCommand(CommandIDs.quickstart, {
      label: args => (args.isLauncher ? trans.__('TPU Quickstart') : trans.__('Open the Pathways Quickstart Notebook')),
      caption: trans.__('A notebook that connects to TPUs and computes on them'),
      icon: pathwaysIcon,
      describedBy: WITHOUT_ARGS,
      execute: async () => {
        try {
          const { path } = await api.quickstart();
          await app.commands.execute('docmanager:open', { path, factory: 'Notebook' });
          succeeded(CommandIDs.quickstart);
        } catch (error) {
          notifyFailure(trans, error, {
            what: trans.__('The quickstart notebook could not be opened.'),
            action: CommandIDs.quickstart
          });
        }
      }
    });
    cards?.add({
      command: CommandIDs.quickstart,
      category: trans.__('Notebook'),
      rank: 50,
      args: { isLauncher: true },
      kernelIconUrl: iconUrl()
    });
  }
};
