/** The actions on jobs: show one in a tab, suspend, resume and delete it. Its log opens like every other one. */
import { ILabShell, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';

import { JobView } from '../components/JobView';
import { JobAction } from '../models/joblist';
import { IScope, scopeKey } from '../models/scope';
import { mayHaveArrays, sessionName } from '../models/sessions';
import { CommandIDs, IPathways } from '../tokens';
import { confirm, withNotification } from './notify';
import { openTab, showAgain } from './tabs';

const JOB_ARGS = {
  type: 'object',
  properties: { job: { type: 'string', description: 'Name of a job in the cluster in view' } },
  required: ['job']
} as const;

export const jobs: JupyterFrontEndPlugin<void> = {
  id: 'pathways-jupyter:jobs',
  description: 'Show, suspend, resume and delete jobs.',
  autoStart: true,
  requires: [IPathways],
  optional: [ILabShell],
  activate: (app: JupyterFrontEnd, pathways: IPathways, lab: ILabShell | null) => {
    const { trans } = pathways;
    const describedBy = { args: JOB_ARGS };
    app.commands.addCommand(CommandIDs.showJob, {
      label: trans.__('Show a Job'),
      describedBy,
      execute: args => show(app, lab, pathways, args.job as string)
    });
    const act = (command: string, label: string, run: (job: string) => Promise<void>) =>
      app.commands.addCommand(command, { label, describedBy, execute: args => run(args.job as string) });
    act(CommandIDs.suspendJob, trans.__('Suspend a Job'), job => suspend(pathways, job));
    act(CommandIDs.resumeJob, trans.__('Resume a Job'), job =>
      send(pathways, pathways.scope, job, 'resume', trans.__('Job %1 starts again.', job))
    );
    act(CommandIDs.deleteJob, trans.__('Delete a Job'), job => remove(pathways, job));
  }
};

function show(app: JupyterFrontEnd, lab: ILabShell | null, { api, scope, trans }: IPathways, job: string): void {
  const id = `pathways-jupyter-job-${scopeKey(scope)}/${job}`;
  if (showAgain(app, lab, id)) {
    return;
  }
  const content = ReactWidget.create(
    React.createElement(JobView, {
      api,
      scope,
      job,
      trans,
      openLog: (pod, title) =>
        void app.commands.execute(CommandIDs.openLog, { pod, title, scope: JSON.stringify(scope) }),
      isVisible: () => content.isVisible && !document.hidden
    })
  );
  openTab(app, lab, id, trans.__('Job: %1', job), content);
}

/** Suspend a job once the user has confirmed it: its pods end with all that they hold. */
async function suspend(pathways: IPathways, job: string): Promise<void> {
  const { scope, trans } = pathways;
  const pods = trans.__('Its pods end with all that they hold; after a resume its program starts from the beginning.');
  const body = [pods, ...attached(pathways, job)].join(' ');
  if (await confirm(trans, trans.__('Suspend job %1?', job), body, trans.__('Suspend'))) {
    await send(pathways, scope, job, 'suspend', trans.__('Job %1 is suspended.', job));
  }
}

/** Delete a job once the user has confirmed it: its pods end, and their logs are gone. */
async function remove(pathways: IPathways, job: string): Promise<void> {
  // The one in view now: a session that ends before the answer may change it.
  const { scope, trans } = pathways;
  const body = [trans.__('Its pods end, and their logs are gone.'), ...attached(pathways, job)].join(' ');
  if (await confirm(trans, trans.__('Delete job %1?', job), body, trans.__('Delete'))) {
    await send(pathways, scope, job, 'delete', trans.__('Job %1 is deleted.', job));
  }
}

/** A sentence about the sessions that would lose their arrays with the job's proxy; none without one. */
function attached({ model, scope, trans }: IPathways, job: string): string[] {
  const names = model.sessions
    .filter(each => each.pathways_job === job && mayHaveArrays(each))
    .filter(each => !scope.namespace || each.namespace === scope.namespace)
    .map(sessionName);
  return names.length ? [trans.__('Attached sessions lose their arrays: %1.', names.join(', '))] : [];
}

async function send(
  { api, trans }: IPathways,
  scope: IScope,
  job: string,
  action: JobAction,
  done: string
): Promise<void> {
  const [during, what] = {
    suspend: [trans.__('Suspending job %1…', job), trans.__('Job %1 could not be suspended.', job)],
    resume: [trans.__('Resuming job %1…', job), trans.__('Job %1 could not be resumed.', job)],
    delete: [trans.__('Deleting job %1…', job), trans.__('Job %1 could not be deleted.', job)]
  }[action];
  await withNotification(trans, api.actOnJob(scope, job, action), { during, after: done, failed: { what } });
}
