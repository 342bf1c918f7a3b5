/** The user's actions in the panel, implemented by the plugins. */
import { JobAction } from '../models/joblist';
import { ISession } from '../models/sessionrows';
import { IJob } from '../models/wire';

export interface IActions {
  /** Open the connect dialog, with "wait" chosen if the slices are taken. */
  readonly connect: (wait?: boolean) => void;
  readonly disconnect: (session: ISession) => void;
  readonly reconnect: (session: ISession) => void;
  /** Save the arrays of a session and free its slices, after the cell that runs. */
  readonly suspend: (session: ISession) => void;
  /** Get slices for a suspended session, and restore its arrays, in its kernel: perhaps when free, or fewer. */
  readonly resume: (session: ISession, how?: { wait?: boolean; slices?: number }) => void;
  /** Count a session as used in which nothing was computed for long. */
  readonly keep: (session: ISession) => void;
  /** Trace the chips for some seconds, and show in a tab what they did. */
  readonly profile: (session: ISession) => void;
  /** Open the log of a pod in a tab. */
  readonly openLog: (pod: string, title: string) => void;
  /** Show a job in a tab. */
  readonly showJob: (job: IJob) => void;
  /** Open the log of a job's program in a tab. */
  readonly openJobLog: (job: IJob) => void;
  /** Attach the notebook in front to a headless job. */
  readonly connectJob: (job: IJob) => void;
  readonly actOnJob: (job: IJob, action: JobAction) => void;
  readonly sweep: () => void;
  readonly startEmbedded: () => void;
  /** Open the quickstart notebook. */
  readonly quickstart: () => void;
  /** Reconnect to the server now. */
  readonly retry: () => void;
}
