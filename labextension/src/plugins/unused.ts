/** Asks about sessions that hold slices while nothing is computed: to suspend, keep or disconnect them. */
import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';

import { ISession } from '../models/sessionrows';
import { acts } from '../models/sessions';
import { UnusedSessions } from '../models/unused';
import { CommandIDs, IPathways } from '../tokens';
import { labNotifications } from './notify';

export const unused: JupyterFrontEndPlugin<void> = {
  id: 'pathways-jupyter:unused',
  description: 'Ask whether to suspend, keep or disconnect a session in which nothing was computed for long.',
  autoStart: true,
  requires: [IPathways],
  activate: (app: JupyterFrontEnd, { model, trans, followPreferences }: IPathways) => {
    const button = (label: string, command: CommandIDs, session: ISession, args = {}) => ({
      label,
      callback: () => void app.commands.execute(command, { session: session.id, ...args })
    });
    const sessions = new UnusedSessions(
      model,
      {
        ask: (text, session) =>
          labNotifications.emit({
            message: text,
            type: 'warning',
            autoClose: false,
            actions: [
              ...(acts(session, 'suspend') ? [button(trans.__('Suspend'), CommandIDs.suspend, session)] : []),
              button(trans.__('Keep'), CommandIDs.keep, session),
              button(trans.__('Disconnect'), CommandIDs.disconnect, session, { ask: true })
            ]
          }),
        dismiss: id => labNotifications.dismiss(id)
      },
      trans
    );
    void followPreferences(preferences => {
      sessions.wanted = preferences.notifications;
    });
  }
};
