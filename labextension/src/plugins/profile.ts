/** What a session's chips do: a picture of some seconds. */
import { ILabShell, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { MainAreaWidget } from '@jupyterlab/apputils';
import { Widget } from '@lumino/widgets';

import { baseName } from '../models/holdings';
import { pathwaysIcon } from '../icon';
import { CommandIDs, IPathways } from '../tokens';
import { withNotification } from './notify';
import { showTab } from './tabs';

/** How long a session is traced from the sidebar. */
const SECONDS = 5;

export const profile: JupyterFrontEndPlugin<void> = {
  id: 'pathways-jupyter:profile',
  description: 'Trace the chips of a session.',
  autoStart: true,
  requires: [IPathways],
  optional: [ILabShell],
  activate: (app: JupyterFrontEnd, pathways: IPathways, lab: ILabShell | null) => {
    const { trans } = pathways;
    const show = (id: string, label: string, content: Widget) => {
      const widget = new MainAreaWidget({ content });
      widget.id = id;
      widget.title.label = label;
      widget.title.icon = pathwaysIcon;
      showTab(app, lab, widget);
    };
    app.commands.addCommand(CommandIDs.profile, {
      label: trans.__('Profile the Chips of a Session'),
      describedBy: {
        args: {
          type: 'object',
          properties: { session: { type: 'string', description: 'Id of a session; default: of the notebook in front' } }
        }
      },
      isEnabled: args => !!args.session || !!pathways.model.session?.alive,
      execute: async args => {
        const session = (args.session as string | undefined) ?? pathways.model.session?.id;
        const traced =
          session &&
          (await withNotification(
            trans,
            pathways.api.profile(session, SECONDS),
            trans.__('Tracing the chips for %1 s…', SECONDS),
            ({ location }) => trans.__('The trace is in %1.', location),
            `${CommandIDs.profile} ${session}`
          ));
        if (traced) {
          const picture = new Widget();
          picture.addClass('jp-Pathways');
          picture.addClass('pw-profile');
          // The server's own, which escapes what a program has named.
          picture.node.innerHTML = traced.html;
          const { notebook = '' } = pathways.model.sessions.find(each => each.id === session) ?? {};
          const name = baseName(notebook) || session;
          show(`pathways-jupyter-profile-${traced.location}`, trans.__('Profile: %1', name), picture);
        }
      }
    });
  }
};
