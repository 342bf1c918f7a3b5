/** The actions on runs on many hosts: end one, or ask its hosts for news. A host's log opens like every other one. */
import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';

import { CommandIDs, IPathways } from '../tokens';
import { confirm, withNotification } from './notify';

const RUN_ARGS = {
  type: 'object',
  properties: { run: { type: 'string', description: 'Id of a run on many hosts' } },
  required: ['run']
} as const;

export const runs: JupyterFrontEndPlugin<void> = {
  id: 'pathways-jupyter:runs',
  description: 'Stop runs on many hosts, and bring them up to date.',
  autoStart: true,
  requires: [IPathways],
  activate: (app: JupyterFrontEnd, pathways: IPathways) => {
    const { trans } = pathways;
    const describedBy = { args: RUN_ARGS };
    app.commands.addCommand(CommandIDs.stopRun, {
      label: trans.__('Stop a Run on Many Hosts'),
      describedBy,
      execute: args => stop(pathways, args.run as string)
    });
    app.commands.addCommand(CommandIDs.refreshRun, {
      label: trans.__('Ask the Hosts of a Run'),
      describedBy,
      execute: args => {
        const run = args.run as string;
        const name = nameOf(pathways, run);
        return withNotification(
          trans,
          pathways.api.actOnRun(run, 'refresh'),
          trans.__('Asking the hosts of run %1…', name),
          trans.__('Run %1 is up to date.', name)
        );
      }
    });
  }
};

/** End a run once the user has confirmed it: what its command has not saved is gone. */
async function stop(pathways: IPathways, run: string): Promise<void> {
  const { api, trans } = pathways;
  const name = nameOf(pathways, run);
  const body = trans.__('Its command ends on all hosts. The output that it has written stays.');
  if (await confirm(trans, trans.__('Stop run %1?', name), body, trans.__('Stop'))) {
    await withNotification(
      trans,
      api.actOnRun(run, 'stop'),
      trans.__('Stopping run %1…', name),
      trans.__('Run %1 is stopped.', name)
    );
  }
}

function nameOf({ model }: IPathways, run: string): string {
  return model.hostsRuns.find(each => each.id === run)?.name ?? run;
}
