/**
 * What the server extension and this package say to each other. The Python side of it is service/tables.py and server/sessionwatch.py: change both.
 */

/** Where a session stands; the same words as Python's `SessionState`. */
export type SessionState = 'starting' | 'waiting' | 'connected' | 'degraded' | 'lost' | 'closing' | 'closed' | 'failed';

/** How a slice, a host or a program does. */
export type Health = 'ready' | 'starting' | 'down';

/** Something that happened to a session. */
export interface IEvent {
  readonly kind: string;
  readonly message: string;
  /** Seconds since the epoch. */
  readonly at: number;
  readonly data: { readonly [key: string]: unknown };
}

/** Which cluster, and where in it. Empty strings mean what the kubeconfig says. */
export interface IScope {
  readonly context: string;
  readonly namespace: string;
  /** Id of a session, for the cluster that it uses where no context names that cluster. */
  readonly session: string;
  /** The embedded cluster of this machine; the other fields are then empty. */
  readonly local: boolean;
}

/** A slice of a session. */
export interface ISessionSlice {
  /** As the service numbers it; null where an older proxy does not say. */
  readonly number: number | null;
  /** JAX's `slice_index` in this session. */
  readonly index: number;
  readonly up: boolean;
}

/** One notebook's connection. */
export interface ISession {
  readonly id: string;
  readonly state: SessionState;
  /** When the present state began, in seconds since the epoch. */
  readonly state_since: number;
  readonly slices: readonly ISessionSlice[];
  /** Whether its supervisor answers. */
  readonly alive: boolean;
  readonly kernel_id: string;
  readonly notebook: string;
  readonly user: string;
  readonly namespace: string;
  readonly service: string;
  /** Slices held per instance type. */
  readonly instances: { readonly [type: string]: number };
  readonly devices: number;
  readonly job: string;
  readonly pod: string;
  readonly created: number;
  readonly scope: IScope;
}

/** One machine of a slice. */
export interface IHost {
  readonly pod: string;
  readonly node: string;
  readonly health: Health;
  readonly chips: number;
  /** Why it is not ready. */
  readonly reason: string;
}

/** The session that has a slice: this notebook's, when `session` is its id; another notebook of this user's, when `mine`. */
export interface IHolder {
  readonly session: string;
  readonly user: string;
  /** Path of the notebook; empty where it is not known. */
  readonly notebook: string;
  readonly since: number;
  readonly mine: boolean;
}

/** One slice of a service. */
export interface ISlice {
  readonly id: string;
  readonly service: string;
  /** As the service numbers its slices. JAX in a session that holds some of them counts those from 0. */
  readonly number: number;
  readonly instance_type: string;
  readonly health: Health;
  readonly hosts: readonly IHost[];
  readonly holder: IHolder | null;
}

/** A Shared Pathways Service. */
export interface IService {
  readonly id: string;
  readonly name: string;
  readonly namespace: string;
  readonly address: string;
  readonly version: string;
  readonly health: Health;
  readonly capacity: readonly ICapacity[];
  /** Of its resource manager; empty while there is none. */
  readonly pod: string;
}

/** What a service has of one instance type. */
export interface ICapacity {
  readonly instance_type: string;
  readonly chips: number;
  readonly total: number;
  readonly ready: number;
  readonly free: number;
}

/** A proxy, whoever it belongs to. */
export interface IProxy {
  readonly id: string;
  readonly session: string;
  readonly user: string;
  readonly service: string;
  readonly notebook: string;
  readonly health: Health;
  readonly slices: readonly string[];
  readonly created: number;
  readonly mine: boolean;
  readonly pod: string;
}

/** A PathwaysJob, a JobSet or a Job. */
export interface IJob {
  readonly id: string;
  readonly kind: string;
  readonly name: string;
  readonly namespace: string;
  readonly state: string;
  readonly message: string;
  readonly created: number;
}

/** A failure, as the server tells it: what happened, and what to do next. */
export interface IProblem {
  readonly message: string;
  readonly hint: string;
}

/** The tables of a cluster, each by id. */
export interface ITables {
  slices: ISlice;
  services: IService;
  proxies: IProxy;
  jobs: IJob;
}

/** The name of a table. */
export type TableName = keyof ITables;

/** Whether the cluster can be heard. */
export type Hearing = 'loading' | 'live' | 'lost' | 'failed';

/** Which cluster and namespace a message is about, and how fresh that is. */
interface IOrigin {
  /** As the page called the place when it asked to look at it. */
  readonly scope: IScope;
  /**
   * The same text for the same namespace of the same cluster, whatever the scope was; empty when the scope means no
   * cluster at the moment. Rows of another identity must not stay.
   */
  readonly identity: string;
  /** When the cluster was last known to be as the tables say, in seconds since the epoch: now while it is live; 0 before. */
  readonly heard: number;
}

/** What the server sends. */
export type Message =
  | { readonly type: 'hello'; readonly version: string; readonly user: string }
  | {
      readonly type: 'sessions';
      readonly sessions: readonly ISession[];
      /** Those that ended while a page of this server was open, as they last were but `closed`; the latest last. Events of
       * them are sent as of the others. */
      readonly ended: readonly ISession[];
    }
  | {
      readonly type: 'events';
      readonly session: string;
      readonly reset: boolean;
      /** False for what happened before anybody listened. */
      readonly news: boolean;
      readonly events: readonly IEvent[];
    }
  | (IOrigin & {
      readonly type: 'hearing';
      readonly hearing: Hearing;
      readonly problem: IProblem | null;
      /** Cluster and namespace, as people call them. */
      readonly place: string;
    })
  | (Omit<IOrigin, 'heard'> & {
      /** Which place a scope means that leaves it open. Sent first, whenever the page comes to look at another place. */
      readonly type: 'named';
      readonly named: IScope;
    })
  | (IOrigin & {
      readonly type: 'tables';
      /** True when everything known before is void. */
      readonly reset: boolean;
      readonly put: { readonly [T in TableName]?: readonly ITables[T][] };
      readonly drop: { readonly [T in TableName]?: readonly string[] };
    });

/** What this package sends: which cluster the page looks at, null when nobody looks. */
export interface ILook {
  readonly type: 'look';
  readonly scope: IScope | null;
}
