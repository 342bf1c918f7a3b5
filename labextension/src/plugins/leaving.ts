/** Has the browser ask once before a page is closed while a session holds slices without a limit. */
import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';

import { leaving } from '../models/leaving';
import { CommandIDs, IPathways } from '../tokens';
import { labNotifications } from './notify';

export const leavingQuestion: JupyterFrontEndPlugin<void> = {
  id: 'pathways-jupyter:leaving',
  description: 'Ask once before the window is closed while a session holds slices without a limit.',
  autoStart: true,
  requires: [IPathways],
  activate: (app: JupyterFrontEnd, { model, trans, followPreferences }: IPathways) => {
    let wanted = true;
    void followPreferences(({ notifications }) => {
      wanted = notifications;
    });
    window.addEventListener('beforeunload', event => {
      const found = wanted ? leaving(model, window.sessionStorage, trans) : null;
      if (found) {
        // The browser asks in its own words; who stays reads ours.
        event.preventDefault();
        const suspend = () => void app.commands.execute(CommandIDs.suspend, { session: found.session.id });
        labNotifications.emit({
          message: found.text,
          type: 'warning',
          autoClose: false,
          actions: [{ label: trans.__('Suspend'), callback: suspend }]
        });
      }
    });
  }
};
