/**
 * The messages between the server extension and this package, and the rows of a cluster. The Python
 * side is service/tables.py and server/updates.py: change both.
 */
import { IScope } from './scope';
import { IElasticRun, IEvent, ISession, Tone } from './sessionrows';

/** A failure reported by the server: what failed, and what to do next. */
export interface IProblem {
  readonly message: string;
  readonly hint: string;
  /** True when no cluster is configured, which is not a failure: there is nothing to fix. */
  readonly nothing_set_up?: boolean;
  /** True when the scope's embedded cluster does not run. */
  readonly embedded_ended?: boolean;
}

/** The health of a slice, host, service or proxy. */
export type Health = 'ready' | 'starting' | 'down';

/** Whether a session can have a slice now; `ready` if it is not known who holds it. */
export type Availability = 'free' | 'in use' | 'reclaimable' | 'ready' | 'starting' | 'down';

/** One machine of a slice. */
export interface IHost {
  readonly pod: string;
  readonly node: string;
  readonly health: Health;
  readonly tone: Tone;
  readonly chips: number;
  /** Why it is not ready. */
  readonly reason: string;
}

/** A proxy whose session is silent: it is kept, until its slices are needed. Times are in seconds since the epoch. */
export interface IReclaimable {
  readonly silent_since: number;
  /** When it is removed even if its slices are not needed. */
  readonly kept_until: number;
}

/** The proxy that holds a slice. */
export interface IHolder {
  readonly session: string;
  readonly user: string;
  /** Path of the notebook; empty if unknown. */
  readonly notebook: string;
  readonly since: number;
  /** Whether it belongs to this user. */
  readonly mine: boolean;
  /** Null unless its session is silent. */
  readonly reclaimable: IReclaimable | null;
}

/** One slice of a service. */
export interface ISlice {
  readonly id: string;
  readonly service: string;
  /** The service's number of the slice; JAX numbers the slices of one session separately. */
  readonly number: number;
  readonly instance_type: string;
  /** `down` also while its holder has lost it, until the holder's proxy has it again. */
  readonly health: Health;
  readonly tone: Tone;
  readonly availability: Availability;
  readonly hosts: readonly IHost[];
  /** What else there is to say of it. */
  readonly remarks: readonly string[];
  /** The session that has it, or has lost it and waits for it. */
  readonly holder: IHolder | null;
}

/** A Shared Pathways Service. */
export interface IService {
  readonly id: string;
  readonly name: string;
  readonly namespace: string;
  readonly version: string;
  /** Ready when its resource manager and at least one slice are. */
  readonly health: Health;
  readonly tone: Tone;
  /** Why it is not ready, as a clause. */
  readonly reason: string;
  readonly capacity: readonly ICapacity[];
  /** Pod of its resource manager; empty while there is none. */
  readonly pod: string;
}

/** A service's slices of one instance type. */
export interface ICapacity {
  readonly instance_type: string;
  readonly chips: number;
  readonly total: number;
  readonly ready: number;
  readonly free: number;
  /** Held for silent sessions, until they are needed. */
  readonly reclaimable: number;
}

/** A proxy of any user. */
export interface IProxy extends IHolder {
  readonly id: string;
  readonly service: string;
  readonly health: Health;
  readonly tone: Tone;
  readonly slices: readonly string[];
  /** When the cluster ends it at the latest, in seconds since the epoch; 0 if that is not known. */
  readonly until: number;
  /** Whether it waits for slices that others hold. */
  readonly waiting: boolean;
  readonly pod: string;
}

/** A PathwaysJob, a JobSet or a Job. */
export interface IJob {
  readonly id: string;
  readonly kind: string;
  readonly name: string;
  readonly namespace: string;
  readonly state: string;
  readonly tone: Tone;
  readonly message: string;
  readonly created: number;
  /** Whether it is a user's job: it can be suspended, resumed and deleted, and has a program with a log. */
  readonly runnable: boolean;
  /** Whether a notebook can attach to its proxy. */
  readonly headless: boolean;
  /** The queue of Kueue's that it is in; empty for none. */
  readonly queue: string;
}

/** A job's pod. */
export interface IJobPod {
  readonly name: string;
  /** `head`, or `slice 1 host 0`. */
  readonly role: string;
  readonly state: string;
  readonly restarts: number;
  readonly node: string;
}

/** An event about a job, its JobSet or its pods. */
export interface IJobEvent {
  readonly time: number;
  readonly about: string;
  readonly reason: string;
  readonly message: string;
  readonly warning: boolean;
}

/** All that is known about one job; the server's answer, not a row. */
export interface IJobPicture {
  readonly job: Pick<IJob, 'name' | 'state' | 'tone' | 'kind' | 'queue'> & {
    readonly reason: string;
    readonly restarts: number;
    readonly instance_type: string;
    readonly slices: number;
  };
  readonly pods: readonly IJobPod[];
  readonly events: readonly IJobEvent[];
}

/** The row types of a cluster's tables. */
export interface ITables {
  slices: ISlice;
  services: IService;
  proxies: IProxy;
  jobs: IJob;
}

/** The name of a table. */
export type TableName = keyof ITables;

/** Where a kernel of this machine's notebooks is that runs in a cluster; the Python side is kernel/places.py. */
export interface IKernelPlace {
  readonly kernel_id: string;
  /** Name of the cluster, for display; empty until it is known. */
  readonly cluster: string;
  readonly ready: boolean;
  /** What it waits for, or why it has ended, as a sentence; empty while there is nothing to say. */
  readonly message: string;
  /** What the pod has of the notebook's folder, and what stays here. */
  readonly note: string;
  /** Whether it has ended without being asked to. */
  readonly failed: boolean;
  /** The cluster, as this server names it. */
  readonly scope: IScope;
}

/** The state of the server's watch on the cluster. */
export type WatchState = 'loading' | 'live' | 'lost' | 'failed';

/** The cluster and namespace of a message, and the age of its content. */
export interface IOrigin {
  /** The requested scope. */
  readonly scope: IScope;
  /**
   * Identifies the cluster and namespace, independent of the scope; empty while the scope resolves to no cluster. Rows
   * of another identity must be removed.
   */
  readonly identity: string;
  /** When the tables were last known to be correct, in seconds since the epoch; 0 if never. */
  readonly as_of: number;
}

/** Messages from the server. */
export type Message =
  /** A sign of life, sent every 15 s. */
  | { readonly type: 'beat' }
  /** In place of a message that the server could not write as JSON, or this page could not read. */
  | { readonly type: 'unreadable' }
  | { readonly type: 'hello'; readonly version: string }
  | {
      readonly type: 'sessions';
      readonly sessions: readonly ISession[];
      /** Sessions that ended while a page of this server was open, latest last; their events are sent too. */
      readonly ended: readonly ISession[];
      /** The kernels beside the chips. */
      readonly kernels?: readonly IKernelPlace[];
    }
  | {
      readonly type: 'events';
      readonly session: string;
      readonly reset: boolean;
      /** False for events from before the server followed the session. */
      readonly news: boolean;
      readonly events: readonly IEvent[];
    }
  | { readonly type: 'elastic'; readonly session: string; readonly run: IElasticRun }
  | (IOrigin & {
      readonly type: 'watch';
      readonly watch: WatchState;
      readonly problem: IProblem | null;
      /** Cluster and namespace, for display. */
      readonly place: string;
    })
  | (Omit<IOrigin, 'as_of'> & {
      /** The same place as `scope`, by explicit names. Sent before other messages when the scope resolves to a new place. */
      readonly type: 'named';
      readonly named: IScope;
    })
  | (IOrigin & {
      readonly type: 'tables';
      /** True if all earlier rows are invalid. */
      readonly reset: boolean;
      readonly put: { readonly [T in TableName]?: readonly ITables[T][] };
      readonly drop: { readonly [T in TableName]?: readonly string[] };
    });
