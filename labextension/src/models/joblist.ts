/** The jobs that the sidebar lists, and what can be done with each. */
import { Cluster } from './cluster';
import { IJob } from './wire';

export type JobAction = 'suspend' | 'resume' | 'delete';

/**
 * Return the jobs of a cluster, the users' first. A job's own JobSet is part of it, and services have rows of their own
 * elsewhere.
 */
export function listed(cluster: Pick<Cluster, 'rows'>): readonly IJob[] {
  const jobs = cluster.rows('jobs');
  const own = new Set(jobs.filter(job => job.kind === 'PathwaysJob').map(job => job.name));
  const services = new Set(cluster.rows('services').map(service => service.name));
  const shown = jobs.filter(job => job.kind !== 'JobSet' || !(own.has(job.name) || services.has(job.name)));
  return [...shown.filter(job => job.runnable), ...shown.filter(job => !job.runnable)];
}

/** Whether a job cannot change its state any more. */
export function isOver(state: string): boolean {
  return state === 'Completed' || state === 'Failed';
}

/** Whether a notebook can attach to a job now, or once it has started; a queue resumes what it has suspended. */
export function canConnect(job: Pick<IJob, 'headless' | 'queue' | 'state'>): boolean {
  return (
    job.headless && (job.state === 'Running' || job.state === 'Pending' || (job.state === 'Suspended' && !!job.queue))
  );
}

/** Return the action that pauses or continues a job; null if there is none now. */
export function pauseAction(job: Pick<IJob, 'runnable' | 'state'>): 'suspend' | 'resume' | null {
  if (!job.runnable || isOver(job.state) || job.state === 'Ending') {
    return null;
  }
  return job.state === 'Suspended' ? 'resume' : 'suspend';
}
