/** The jobs that the sidebar lists, and what can be done with each. */
import { IJob } from './wire';

export type JobAction = 'suspend' | 'resume' | 'delete';

/** Return the users' jobs first; a job's own JobSet is part of it and has no row. */
export function listed(jobs: readonly IJob[]): readonly IJob[] {
  const own = new Set(jobs.filter(job => job.kind === 'PathwaysJob').map(job => job.name));
  const shown = jobs.filter(job => job.kind === 'PathwaysJob' || !own.has(job.name));
  return [...shown.filter(job => job.runnable), ...shown.filter(job => !job.runnable)];
}

/** Whether a job cannot change its state any more. */
export function isOver(state: string): boolean {
  return state === 'Completed' || state === 'Failed';
}

/** Whether a notebook can attach to a job now, or once it has started. */
export function canConnect(job: Pick<IJob, 'headless' | 'state'>): boolean {
  return job.headless && (job.state === 'Running' || job.state === 'Pending');
}

/** Return the action that pauses or continues a job; null if there is none now. */
export function pauseAction(job: Pick<IJob, 'runnable' | 'state'>): 'suspend' | 'resume' | null {
  if (!job.runnable || isOver(job.state) || job.state === 'Ending') {
    return null;
  }
  return job.state === 'Suspended' ? 'resume' : 'suspend';
}
