/** All actions as commands, for the palette, menus and shortcuts. */
import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette, Notification } from '@jupyterlab/apputils';
import { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import { ISession, SessionCommand } from '../models/sessionrows';
import { acts, mayHaveArrays, saveName, sessionName, verdictSentence } from '../models/sessions';
import { suspended } from '../models/suspending';
import { isUnused } from '../models/unused';
import { busySentence, lossSentence, size } from '../models/words';
import { CommandIDs, IPathways, WITHOUT_ARGS } from '../tokens';
import { confirm, notifyFailure, succeeded, withNotification } from './notify';
import { addSessionCommand } from './sessioncommand';

export const commands: JupyterFrontEndPlugin<void> = {
  id: 'pathways-jupyter:commands',
  description: 'Disconnect, reconnect, suspend and clean up from the palette.',
  autoStart: true,
  requires: [IPathways],
  optional: [ICommandPalette],
  activate: (app: JupyterFrontEnd, pathways: IPathways, palette: ICommandPalette | null) => {
    const { model, api, trans } = pathways;
    addSessionCommand(app, model, CommandIDs.disconnect, {
      label: trans.__('Disconnect This Notebook'),
      can: each => acts(each, 'disconnect'),
      run: (session, args) => disconnect(app, pathways, session, args),
      args: DISCONNECT_ARGS
    });
    addSessionCommand(app, model, CommandIDs.reconnect, {
      label: trans.__('Reconnect This Notebook'),
      can: each => acts(each, 'reconnect'),
      run: session => reconnect(app, pathways, session)
    });
    addSessionCommand(app, model, CommandIDs.keep, {
      label: trans.__('Keep This Notebook Connected'),
      can: isUnused,
      run: session =>
        api.actOnSession(session.id, 'keep').catch((error: unknown) =>
          notifyFailure(trans, error, {
            what: trans.__('That %1 is in use could not be reported.', sessionName(session)),
            action: CommandIDs.keep
          })
        )
    });
    addSessionCommand(app, model, CommandIDs.suspend, {
      label: trans.__('Suspend This Notebook'),
      can: each => acts(each, 'suspend'),
      run: session => suspend(pathways, session)
    });
    addSessionCommand(app, model, CommandIDs.openProxyLog, {
      label: trans.__('Log of This Notebook’s Proxy'),
      can: each => !!each.pod,
      run: ({ pod }) => app.commands.execute(CommandIDs.openLog, { pod, title: trans.__('Proxy') })
    });
    app.commands.addCommand(CommandIDs.sweep, {
      label: trans.__('Clean Up Stale Proxies'),
      describedBy: WITHOUT_ARGS,
      execute: () => sweep(pathways)
    });
    app.commands.addCommand(CommandIDs.startEmbedded, {
      label: trans.__('Start the Embedded Cluster'),
      describedBy: WITHOUT_ARGS,
      isEnabled: () => !model.embeddedStarts,
      execute: async () => {
        model.setEmbeddedStarts(true);
        await withNotification(trans, api.startEmbedded(), {
          during: trans.__('Starting the embedded cluster…'),
          after: trans.__('The embedded cluster runs. It ends when it has not been used for half an hour.'),
          failed: { what: trans.__('The embedded cluster could not be started.') }
        });
        model.setEmbeddedStarts(false);
      }
    });
    app.commands.addCommand(CommandIDs.retry, {
      label: trans.__('Reconnect the Sidebar to the Server'),
      describedBy: WITHOUT_ARGS,
      execute: () => pathways.retry()
    });
    model.changed.connect((_, facet) => {
      if (facet === 'sessions' || facet === 'front') {
        app.commands.notifyCommandChanged();
      }
    });
    for (const command of IN_PALETTE) {
      palette?.addItem({ command, category: trans.__('Pathways') });
    }
  }
};

const DISCONNECT_ARGS = {
  confirmed: { type: 'boolean', description: 'Whether the user has already confirmed' },
  ask: { type: 'boolean', description: 'Whether to ask also if nothing would be lost' }
} as const;

const IN_PALETTE = [
  CommandIDs.connect,
  CommandIDs.insertConnect,
  CommandIDs.disconnect,
  CommandIDs.reconnect,
  CommandIDs.suspend,
  CommandIDs.resume,
  CommandIDs.keep,
  CommandIDs.openProxyLog,
  CommandIDs.profile,
  CommandIDs.showPanel,
  CommandIDs.sweep,
  CommandIDs.quickstart,
  CommandIDs.startEmbedded,
  CommandIDs.retry
];

/** Disconnect, after a question if that costs something: arrays on the TPUs, or the cell that is running. */
async function disconnect(
  app: JupyterFrontEnd,
  pathways: IPathways,
  session: ISession,
  { confirmed, ask }: ReadonlyPartialJSONObject
): Promise<void> {
  const { api, trans } = pathways;
  if (confirmed !== true) {
    const cost = await costOf(app, pathways, session, 'disconnect');
    if (
      (cost || ask === true) &&
      !(await confirm(trans, trans.__('Disconnect %1?', sessionName(session)), cost, trans.__('Disconnect')))
    ) {
      return;
    }
  }
  const name = sessionName(session);
  const save = session.saved ? saveName(session.saved) : '';
  await withNotification(trans, api.actOnSession(session.id, 'disconnect'), {
    during: trans.__('Disconnecting %1…', name),
    after: save
      ? trans.__('%1 is disconnected. Its arrays stay saved: “%pathways load %2” sets them.', name, save)
      : trans.__('%1 is disconnected, and its proxy is removed.', name),
    failed: {
      what: trans.__('%1 could not be disconnected.', name),
      safe: session.saved ? trans.__('Its arrays are still saved.') : ''
    }
  });
}

/** Get a new proxy, after a question unless the present one is lost. */
async function reconnect(app: JupyterFrontEnd, pathways: IPathways, session: ISession): Promise<void> {
  const { api, trans } = pathways;
  if (session.verdicts.reconnect?.does === 'asks') {
    const cost = await costOf(app, pathways, session, 'reconnect');
    const body = [
      session.state === 'interrupted'
        ? trans.__('The connection to its proxy is interrupted, and is tried again; its arrays are kept.')
        : trans.__('Its proxy works, and would be replaced by a new one.'),
      cost || trans.__('It has no arrays on its TPUs.')
    ];
    if (
      !(await confirm(
        trans,
        trans.__('Reconnect %1?', sessionName(session)),
        body.join(' '),
        trans.__('Get a new proxy')
      ))
    ) {
      return;
    }
  }
  await withNotification(trans, api.actOnSession(session.id, 'reconnect'), {
    during: trans.__('Reconnecting %1…', sessionName(session)),
    after: trans.__('%1 has a new proxy.', sessionName(session)),
    failed: {
      what: trans.__('%1 could not be reconnected.', sessionName(session)),
      safe: trans.__('What its variables hold outside of TPUs is as it was.')
    }
  });
}

/** Have the kernel save all arrays and free the slices: now, or after the cell that runs. */
async function suspend({ api, model, trans }: IPathways, session: ISession): Promise<void> {
  const name = sessionName(session);
  const failed = {
    what: trans.__('%1 could not be suspended.', name),
    safe: trans.__('Its arrays are where they were.'),
    action: `${CommandIDs.suspend} ${session.id}`
  };
  try {
    const { after_cell: later } = await api.suspend(session.id);
    await withNotification(trans, suspended(model, session.id, trans), {
      during: later
        ? trans.__('%1 is suspended after the cell that runs…', name)
        : trans.__('Suspending %1: its arrays are saved…', name),
      after: saved =>
        saved
          ? trans._n(
              '%2 is suspended, its slices are free: %1 array (%3) is saved.',
              '%2 is suspended, its slices are free: %1 arrays (%3) are saved.',
              saved.count,
              name,
              size(saved.bytes)
            )
          : trans.__('%1 is suspended, and its slices are free.', name),
      failed
    });
  } catch (error) {
    notifyFailure(trans, error, failed);
  }
}

/** Return what a command costs, as far as that is known now; empty if nothing. */
async function costOf(
  app: JupyterFrontEnd,
  { api, trans }: IPathways,
  session: ISession,
  command: SessionCommand
): Promise<string> {
  // Where arrays are saved or being saved, what stays of them is worth more than their number.
  const counts = mayHaveArrays(session) && !session.saved && session.state !== 'suspending';
  const [busy, arrays] = await Promise.all([
    isBusy(app, session.kernel_id),
    counts ? api.arrays(session.id).catch(() => null) : null
  ]);
  const loss = counts ? lossSentence(trans, arrays) : verdictSentence(session, command);
  return [busy && busySentence(trans, session), loss].filter(Boolean).join(' ');
}

async function isBusy(app: JupyterFrontEnd, kernelId: string): Promise<boolean> {
  const { kernels } = app.serviceManager;
  // Ask the server: the session's notebook may not be open in this page.
  await kernels.refreshRunning().catch(() => undefined);
  return [...kernels.running()].some(kernel => kernel.id === kernelId && kernel.execution_state === 'busy');
}

/** Remove stale proxies of the cluster in view, which may change before the answer. */
async function sweep({ api, scope, trans }: IPathways): Promise<void> {
  try {
    const { removed } = await api.sweep(scope, true);
    succeeded(CommandIDs.sweep);
    if (!removed.length) {
      Notification.info(trans.__('You have no stale proxies.'), { autoClose: 4000 });
      return;
    }
    const body = trans.__('No session renews the leases of these proxies any more: %1', removed.join(', '));
    if (await confirm(trans, trans.__('Clean up stale proxies?'), body, trans.__('Remove'))) {
      const done = await api.sweep(scope, false);
      Notification.success(trans.__('Removed: %1', done.removed.join(', ') || '–'), { autoClose: 4000 });
    }
  } catch (error) {
    notifyFailure(trans, error, { what: trans.__('Stale proxies could not be cleaned up.'), action: CommandIDs.sweep });
  }
}
