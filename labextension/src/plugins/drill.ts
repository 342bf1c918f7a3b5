/** Fault drill: break a slice of the embedded cluster on purpose, and watch what happens. */
import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';

import { BREAK_SECONDS } from '../models/drill';
import { ISlice } from '../models/wire';
import { CommandIDs, IPathways } from '../tokens';
import { confirm, withNotification } from './notify';

const SLICE_ARGS = {
  type: 'object',
  properties: { slice: { type: 'string', description: 'Id of a slice of the embedded cluster in view' } },
  required: ['slice']
} as const;

export const drill: JupyterFrontEndPlugin<void> = {
  id: 'pathways-jupyter:drill',
  description: 'Break slices of the embedded cluster on purpose, and heal them.',
  autoStart: true,
  requires: [IPathways],
  activate: (app: JupyterFrontEnd, pathways: IPathways) => {
    const { trans } = pathways;
    const describedBy = { args: SLICE_ARGS };
    const add = (command: string, label: string, run: (pathways: IPathways, slice: ISlice) => Promise<void>) =>
      app.commands.addCommand(command, {
        label,
        describedBy,
        execute: async args => {
          const slice = pathways.model.cluster?.find('slices', args.slice as string);
          if (slice) {
            await run(pathways, slice);
          }
        }
      });
    add(CommandIDs.breakSlice, trans.__('Break a Slice of the Embedded Cluster…'), breakSlice);
    add(CommandIDs.healSlice, trans.__('Heal a Slice of the Embedded Cluster'), healSlice);
  }
};

/**
 * Break a slice once the user has confirmed it: its arrays are lost, also those of other notebooks. The cluster in view
 * may change before the answer.
 */
async function breakSlice({ api, scope, trans }: IPathways, slice: ISlice): Promise<void> {
  const body = trans.__(
    'Its worker is killed, and the arrays on it are lost. It stays down for %1 s, or until “Heal”.',
    BREAK_SECONDS
  );
  if (await confirm(trans, trans.__('Break slice %1?', slice.number), body, trans.__('Break'))) {
    await withNotification(
      trans,
      api.drill(scope, slice, 'break'),
      trans.__('Breaking slice %1…', slice.number),
      trans.__('Slice %1 is broken for %2 s, or until “Heal”.', slice.number, BREAK_SECONDS)
    );
  }
}

async function healSlice({ api, scope, trans }: IPathways, slice: ISlice): Promise<void> {
  await withNotification(
    trans,
    api.drill(scope, slice, 'heal'),
    trans.__('Healing slice %1…', slice.number),
    trans.__('Slice %1 recovers as soon as its worker is up.', slice.number)
  );
}
