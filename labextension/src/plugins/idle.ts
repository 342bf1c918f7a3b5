/** Asks about sessions that hold slices while no cell has run for long: to disconnect them, or to keep them connected. */
import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';

import { pageClock } from '../models/clock';
import { IdleGuard } from '../models/idleguard';
import { ISession } from '../models/sessionrows';
import { CommandIDs, IPathways } from '../tokens';
import { labNotifications } from './notify';

export const idle: JupyterFrontEndPlugin<void> = {
  id: 'pathways-jupyter:idle',
  description: 'Ask whether to disconnect a session that holds slices while no cell has run for long.',
  autoStart: true,
  requires: [IPathways],
  activate: (app: JupyterFrontEnd, { model, trans, followPreferences }: IPathways) => {
    const { kernels } = app.serviceManager;
    const disconnect = ({ id }: ISession) => ({
      label: trans.__('Disconnect'),
      callback: () => void app.commands.execute(CommandIDs.disconnect, { session: id, ask: true })
    });
    const keep = ({ id, suspends_at }: ISession) => ({
      label: trans.__('Keep'),
      // It stays connected anyway, unless it is about to be suspended.
      callback: () => void (suspends_at > 0 && app.commands.execute(CommandIDs.keep, { session: id }))
    });
    const guard = new IdleGuard(
      model,
      { running: () => kernels.running(), refresh: () => kernels.refreshRunning() },
      {
        ask: (text, session) =>
          labNotifications.emit({
            message: text,
            type: 'warning',
            autoClose: false,
            actions: session.suspends_at > 0 ? [keep(session)] : [disconnect(session), keep(session)]
          }),
        dismiss: id => labNotifications.dismiss(id)
      },
      trans
    );
    void followPreferences(wanted => {
      guard.minutes = wanted.notifications ? wanted.idleMinutes : 0;
    }).then(() => {
      pageClock.subscribe(() => void guard.check(pageClock.now()));
    });
  }
};
