/** What a session's chips do: a picture of some seconds. */
import { ILabShell, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Widget } from '@lumino/widgets';

import { acts, sessionName } from '../models/sessions';
import { CommandIDs, IPathways } from '../tokens';
import { withNotification } from './notify';
import { addSessionCommand } from './sessioncommand';
import { openTab } from './tabs';

/** How long a session is traced from the sidebar. */
const SECONDS = 5;

export const profile: JupyterFrontEndPlugin<void> = {
  id: 'pathways-jupyter:profile',
  description: 'Trace the chips of a session.',
  autoStart: true,
  requires: [IPathways],
  optional: [ILabShell],
  activate: (app: JupyterFrontEnd, { model, api, trans }: IPathways, lab: ILabShell | null) => {
    addSessionCommand(app, model, CommandIDs.profile, {
      label: trans.__('Profile the Chips of a Session'),
      can: each => acts(each, 'run'),
      run: async session => {
        const traced = await withNotification(trans, api.profile(session.id, SECONDS), {
          during: trans.__('Tracing the chips for %1 s…', SECONDS),
          after: ({ location }) => trans.__('The trace is in %1.', location),
          failed: {
            what: trans.__('The chips of %1 could not be traced.', sessionName(session)),
            safe: trans.__('Its session is as it was.'),
            action: `${CommandIDs.profile} ${session.id}`
          }
        });
        if (traced) {
          const picture = new Widget();
          picture.addClass('pw-profile');
          // The server's own, which escapes what a program has named.
          picture.node.innerHTML = traced.html;
          const title = trans.__('Profile: %1', sessionName(session));
          openTab(app, lab, `pathways-jupyter-profile-${traced.location}`, title, picture);
        }
      }
    });
  }
};
