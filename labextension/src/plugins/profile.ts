/** What a session's chips do: a picture of some seconds, and the whole trace in XProf. */
import { ILabShell, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IFrame, MainAreaWidget, Notification } from '@jupyterlab/apputils';
import { URLExt } from '@jupyterlab/coreutils';
import { ITranslator, nullTranslator, TranslationBundle } from '@jupyterlab/translation';
import { Widget } from '@lumino/widgets';

import { pathwaysIcon } from '../icon';
import { CommandIDs, DOMAIN, IPathways } from '../tokens';
import { failure, SUCCESS_MILLISECONDS } from './notify';
import { showAgain, showTab } from './tabs';

/** How long a session is traced from the sidebar. */
const SECONDS = 5;

export const profile: JupyterFrontEndPlugin<void> = {
  id: 'pathways-jupyter:profile',
  description: 'Trace the chips of a session, and open traces in XProf.',
  autoStart: true,
  requires: [IPathways],
  optional: [ILabShell, ITranslator],
  activate: (app: JupyterFrontEnd, pathways: IPathways, lab: ILabShell | null, translator: ITranslator | null) => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
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
        const traced = session && (await trace(pathways, trans, session));
        if (traced) {
          const picture = new Widget();
          picture.addClass('jp-Pathways');
          picture.addClass('pw-profile');
          // The server's own, which escapes what a program has named.
          picture.node.innerHTML = traced.html;
          // Newer versions of JupyterLab ask before a link of untrusted HTML runs a command.
          // eslint-disable-next-line @typescript-eslint/no-unnecessary-condition -- older ones have no such method
          app.commandLinker.markTrusted?.(picture.node);
          show(`pathways-jupyter-profile-${traced.location}`, trans.__('Profile: %1', session), picture);
        }
      }
    });
    app.commands.addCommand(CommandIDs.openXProf, {
      label: trans.__('Open a Trace in XProf'),
      describedBy: {
        args: {
          type: 'object',
          properties: { location: { type: 'string', description: 'Directory of the trace: gs://…' } },
          required: ['location']
        }
      },
      execute: async args => {
        const location = args.location as string;
        const id = `pathways-jupyter-xprof-${location}`;
        if (showAgain(app, lab, id)) {
          return;
        }
        try {
          const { path } = await pathways.api.openXProf(location);
          // As same-origin, its pages can send the user's login with their requests.
          const frame = new IFrame({
            sandbox: ['allow-same-origin', 'allow-scripts', 'allow-popups', 'allow-downloads']
          });
          frame.url = URLExt.join(pathways.api.settings.baseUrl, path);
          show(id, 'XProf', frame);
        } catch (error) {
          Notification.error(failure(trans, error), { autoClose: false });
        }
      }
    });
  }
};

/** Trace a session while a notification says so; null if that failed, which the notification says then. */
async function trace(pathways: IPathways, trans: TranslationBundle, session: string) {
  const during = trans.__('Tracing the chips for %1 s…', SECONDS);
  const id = Notification.emit(during, 'in-progress', { autoClose: false });
  try {
    const traced = await pathways.api.profile(session, SECONDS);
    const message = trans.__('The trace is in %1.', traced.location);
    Notification.update({ id, message, type: 'success', autoClose: SUCCESS_MILLISECONDS });
    return traced;
  } catch (error) {
    Notification.update({ id, message: failure(trans, error), type: 'error', autoClose: 0 });
    return null;
  }
}
