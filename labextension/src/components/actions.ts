/** The user's actions in the panel, each a command. */
import { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import { JobAction } from '../models/joblist';
import { Model } from '../models/model';
import { ISession } from '../models/sessionrows';
import { ITrans } from '../models/trans';
import { IJob } from '../models/wire';
import { CommandIDs } from '../tokens';

const JOB_COMMANDS = {
  suspend: CommandIDs.suspendJob,
  resume: CommandIDs.resumeJob,
  delete: CommandIDs.deleteJob
} as const;

/** @param run Executes a command. */
export function actionsOf(run: (command: CommandIDs, args?: ReadonlyPartialJSONObject) => void) {
  return {
    /** Open the connect dialog, with "wait" chosen if the slices are taken. */
    connect: (wait?: boolean) => run(CommandIDs.connect, { wait }),
    disconnect: ({ id }: ISession) => run(CommandIDs.disconnect, { session: id }),
    reconnect: ({ id }: ISession) => run(CommandIDs.reconnect, { session: id }),
    suspend: ({ id }: ISession) => run(CommandIDs.suspend, { session: id }),
    resume: ({ id }: ISession, how?: { wait?: boolean; slices?: number }) =>
      run(CommandIDs.resume, { session: id, ...how }),
    keep: ({ id }: ISession) => run(CommandIDs.keep, { session: id }),
    profile: ({ id }: ISession) => run(CommandIDs.profile, { session: id }),
    openLog: (pod: string, title: string) => run(CommandIDs.openLog, { pod, title }),
    showJob: ({ name }: IJob) => run(CommandIDs.showJob, { job: name }),
    openJobLog: ({ name }: IJob) => run(CommandIDs.openLog, { job: name }),
    connectJob: ({ name }: IJob) => run(CommandIDs.connectJob, { job: name }),
    actOnJob: ({ name }: IJob, action: JobAction) => run(JOB_COMMANDS[action], { job: name }),
    startEmbedded: () => run(CommandIDs.startEmbedded),
    sweep: () => run(CommandIDs.sweep),
    quickstart: () => run(CommandIDs.quickstart),
    retry: () => run(CommandIDs.retry)
  };
}

export type IActions = ReturnType<typeof actionsOf>;

/** What the sections of the panel have in common. */
export interface ISectionBodyProps {
  readonly model: Model;
  readonly actions: IActions;
  readonly trans: ITrans;
}
