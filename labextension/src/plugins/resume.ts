/** Resume a suspended session in its kernel, which alone knows where the saved arrays were. */
import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { Kernel } from '@jupyterlab/services';

import { Problem } from '../models/problem';
import { freeSlices } from '../models/line';
import { Model } from '../models/model';
import { ITrans } from '../models/trans';
import { ISession } from '../models/sessionrows';
import { acts, sessionName } from '../models/sessions';
import { size } from '../models/words';
import { CommandIDs, IPathways } from '../tokens';
import { withNotification } from './notify';
import { addSessionCommand } from './sessioncommand';

/** How to resume: with slices that are free later, or with another number of them. */
interface IOptions {
  readonly wait?: boolean;
  readonly slices?: number;
}

const OPTIONS = {
  wait: { type: 'boolean', description: 'Whether to wait until slices are free' },
  slices: { type: 'number', description: 'Another number of slices of the same type' }
} as const;

export const resume: JupyterFrontEndPlugin<void> = {
  id: 'pathways-jupyter:resume',
  description: 'Resume a suspended session in its kernel.',
  autoStart: true,
  requires: [IPathways],
  optional: [INotebookTracker],
  activate: (app: JupyterFrontEnd, { model, trans }: IPathways, notebooks: INotebookTracker | null) => {
    const kernelOf = (id: string) =>
      notebooks?.find(panel => panel.sessionContext.session?.kernel?.id === id)?.sessionContext.session?.kernel;
    /** Sessions whose kernel has not answered yet: behind other cells, and a second request would fail. */
    const resuming = new Set<string>();
    addSessionCommand(app, model, CommandIDs.resume, {
      label: trans.__('Resume This Notebook'),
      can: each => acts(each, 'resume'),
      args: OPTIONS,
      run: async (session, args) => {
        const options: IOptions = { wait: args.wait === true, slices: Number(args.slices) || undefined };
        if (!session.saved || resuming.has(session.id)) {
          return;
        }
        resuming.add(session.id);
        const name = sessionName(session);
        const { count, bytes } = session.saved;
        await withNotification(trans, run(kernelOf(session.kernel_id), session, options, trans), {
          during: options.wait
            ? trans.__('Resuming %1 when slices are free, after the cells that are running…', name)
            : trans.__('Resuming %1, after the cells that are running…', name),
          after: trans._n(
            '%2 is resumed: %1 array (%3) is where it was.',
            '%2 is resumed: %1 arrays (%3) are where they were.',
            count,
            name,
            size(bytes)
          ),
          failed: {
            what: trans.__('%1 could not be resumed.', name),
            safe: trans.__('Its arrays are still saved.'),
            action: `${CommandIDs.resume} ${session.id}`,
            offers: problem => (problem.kind === CAPACITY ? offers(app, model, session, trans) : [])
          }
        });
        resuming.delete(session.id);
      }
    });
  }
};

/** The class of the error of slices that are taken. */
const CAPACITY = 'CapacityError';

/** Return the buttons for a resume that fails because slices are taken. */
function offers(app: JupyterFrontEnd, model: Model, session: ISession, trans: ITrans): Notification.IAction[] {
  const button = (label: string, options: IOptions) => ({
    label,
    callback: () => void app.commands.execute(CommandIDs.resume, { session: session.id, ...options })
  });
  const found = freeSlices(session, model.live ? (model.cluster?.rows('services') ?? []) : []);
  return [
    button(trans.__('Resume when free'), { wait: true }),
    ...(found?.free && found.free < found.wanted
      ? [button(trans._n('Resume on %1 slice', 'Resume on %1 slices', found.free), { slices: found.free })]
      : [])
  ];
}

/** Sets no variable. No cell, which would fail when the notebook is run again from its beginning. */
function code(session: ISession, { wait, slices }: IOptions): string {
  const [type = ''] = Object.keys(session.instances);
  const given = [...(slices ? [`tpu=${JSON.stringify(`${type}=${slices}`)}`] : []), ...(wait ? ['wait=True'] : [])];
  return `__import__("pathways_jupyter").current_session().resume(${given.join(', ')})`;
}

/**
 * Run the code in turn with the notebook's cells. Rejects with what the kernel says.
 *
 * @param kernel The notebook's own connection: the server holds back messages of a new one while the kernel is busy, so
 * that cells which the user runs later would overtake it.
 */
async function run(
  kernel: Kernel.IKernelConnection | null | undefined,
  session: ISession,
  options: IOptions,
  trans: ITrans
): Promise<void> {
  if (!kernel) {
    throw new Problem(trans.__('The notebook of this session is not open.'), trans.__('Open it, then resume.'));
  }
  // Cells that wait behind it run also if it fails.
  const request = {
    code: code(session, options),
    silent: true,
    store_history: false,
    allow_stdin: false,
    stop_on_error: false
  };
  const { content } = await kernel.requestExecute(request).done;
  if (content.status === 'error') {
    throw new Problem(content.evalue, '', 0, content.ename);
  }
  if (content.status !== 'ok') {
    throw new Problem(trans.__('A cell before it has failed.'), trans.__('Try again.'));
  }
}
