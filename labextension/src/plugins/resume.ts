/** Resume a suspended session in its kernel, which alone knows where the saved arrays were. */
import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { INotebookTracker } from '@jupyterlab/notebook';
import { Kernel } from '@jupyterlab/services';

import { Problem } from '../models/api';
import { ITrans } from '../models/trans';
import { acts, sessionName } from '../models/sessions';
import { size } from '../models/words';
import { CommandIDs, IPathways } from '../tokens';
import { withNotification } from './notify';
import { addSessionCommand } from './sessioncommand';

/** Sets no variable. No cell, which would fail when the notebook is run again from its beginning. */
const CODE = '__import__("pathways_jupyter").current_session().resume()';

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
      run: async session => {
        if (!session.saved || resuming.has(session.id)) {
          return;
        }
        resuming.add(session.id);
        const name = sessionName(session);
        const { count, bytes } = session.saved;
        await withNotification(
          trans,
          run(kernelOf(session.kernel_id), trans),
          trans.__('Resuming %1, after the cells that are running…', name),
          trans._n(
            '%2 is resumed: %1 array (%3) is where it was.',
            '%2 is resumed: %1 arrays (%3) are where they were.',
            count,
            name,
            size(bytes)
          )
        );
        resuming.delete(session.id);
      }
    });
  }
};

/**
 * Run the code in turn with the notebook's cells. Rejects with what the kernel says.
 *
 * @param kernel The notebook's own connection: the server holds back messages of a new one while the kernel is busy, so
 * that cells which the user runs later would overtake it.
 */
async function run(kernel: Kernel.IKernelConnection | null | undefined, trans: ITrans): Promise<void> {
  const hint = trans.__('The arrays are still saved: try again.');
  if (!kernel) {
    throw new Problem(trans.__('The notebook of this session is not open.'), hint, 0);
  }
  // Cells that wait behind it run also if it fails.
  const request = { code: CODE, silent: true, store_history: false, allow_stdin: false, stop_on_error: false };
  const { content } = await kernel.requestExecute(request).done;
  if (content.status === 'error') {
    throw new Problem(content.evalue, '', 0);
  }
  if (content.status !== 'ok') {
    throw new Problem(trans.__('Not resumed, because a cell before it has failed.'), hint, 0);
  }
}
