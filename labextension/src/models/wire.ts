/**
 * The messages between the server extension and this package. The Python side is service/tables.py and
 * server/sessionwatch.py: change both.
 */

/** The state of a session; the same words as Python's `SessionState`. */
export type SessionState =
  | 'starting'
  | 'waiting'
  | 'connected'
  /** Connected, but at least one of its slices is down. */
  | 'degraded'
  | 'lost'
  | 'closing'
  | 'closed'
  | 'failed';

/** The health of a slice, a host or a program. */
export type Health = 'ready' | 'starting' | 'down';

/** Something that happened to a session. */
export interface IEvent {
  readonly kind: string;
  readonly message: string;
  /** Seconds since the epoch. */
  readonly at: number;
  readonly data: { readonly [key: string]: unknown };
}

/** Which cluster, and where in it. Empty strings mean what the server's kubeconfig says. */
export interface IScope {
  readonly context: string;
  readonly namespace: string;
  /** Id of a session, for the cluster that it uses when no context names that cluster. */
  readonly session: string;
  /** The embedded cluster of this machine. */
  readonly local: boolean;
}

/** One slice that a session holds. */
export interface ISessionSlice {
  /** The service's number of the slice, by which people call it; null where an older proxy does not report it. */
  readonly number: number | null;
  /** JAX's `slice_index` in this session. */
  readonly index: number;
  /** Whether it can be computed on now. */
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

/** The proxy that holds a slice. */
export interface IHolder {
  readonly session: string;
  readonly user: string;
  /** Path of the notebook; empty where it is not known. */
  readonly notebook: string;
  readonly since: number;
  /** Whether it is this user's. */
  readonly mine: boolean;
}

/** One slice of a service. */
export interface ISlice {
  readonly id: string;
  readonly service: string;
  /** The service's number of the slice; JAX counts the slices of one session. */
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

/** A proxy of any user. */
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

/** A failure as the server reports it: what happened, and what to do next. */
export interface IProblem {
  readonly message: string;
  readonly hint: string;
  /** Whether it is none: no cluster was ever set up, and there is nothing to repair. */
  readonly nothing_set_up?: boolean;
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

/** Whether the server receives news from the cluster. */
export type WatchState = 'loading' | 'live' | 'lost' | 'failed';

/** Which cluster and namespace a message is about, and how fresh it is. */
export interface IOrigin {
  /** What the page asked for. */
  readonly scope: IScope;
  /**
   * The same text for the same namespace of the same cluster, whatever the scope; empty when the scope means no cluster
   * at the moment. Rows of another identity must not stay.
   */
  readonly identity: string;
  /** When the tables were last known to be right, in seconds since the epoch; 0 when they never were. */
  readonly as_of: number;
}

/** What the server sends. */
export type Message =
  | { readonly type: 'hello'; readonly version: string; readonly user: string }
  | {
      readonly type: 'sessions';
      readonly sessions: readonly ISession[];
      /** Sessions that ended while a page of this server was open, the latest last; their events are sent as well. */
      readonly ended: readonly ISession[];
    }
  | {
      readonly type: 'events';
      readonly session: string;
      readonly reset: boolean;
      /** False for what happened before the server followed the session. */
      readonly news: boolean;
      readonly events: readonly IEvent[];
    }
  | (IOrigin & {
      readonly type: 'watch';
      readonly watch: WatchState;
      readonly problem: IProblem | null;
      /** Cluster and namespace, as people call them. */
      readonly place: string;
    })
  | (Omit<IOrigin, 'as_of'> & {
      /** The same place as `scope`, by its name. Sent first, whenever the scope means another place. */
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

/** What this package sends: the cluster that the page shows, null when it shows none. */
export interface ILook {
  readonly type: 'look';
  readonly scope: IScope | null;
}
