/**
 * What the server extension and this package say to each other. The Python side of it is service/tables.py and server/sessionwatch.py: change both.
 */

/** Where a session stands; the same words as Python's `SessionState`. */
export type SessionState = 'starting' | 'waiting' | 'connected' | 'lost' | 'closing' | 'closed' | 'failed';

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
  readonly kubeconfig: string;
  /** `project/region/cluster`, for a cluster without a kubeconfig. */
  readonly gke: string;
  /** The embedded cluster of this machine; the other fields are then empty. */
  readonly local: boolean;
}

/** One notebook's connection. */
export interface ISession {
  readonly id: string;
  readonly state: SessionState;
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

/** Who has a slice. */
export interface IHolder {
  readonly session: string;
  readonly user: string;
  readonly since: number;
  readonly mine: boolean;
}

/** One slice of a service. */
export interface ISlice {
  readonly id: string;
  readonly service: string;
  readonly index: number;
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

/** What the server sends. */
export type Message =
  | { readonly type: 'hello'; readonly version: string; readonly user: string }
  | { readonly type: 'sessions'; readonly sessions: readonly ISession[] }
  | {
      readonly type: 'events';
      readonly session: string;
      readonly reset: boolean;
      /** False for what happened before anybody listened. */
      readonly news: boolean;
      readonly events: readonly IEvent[];
    }
  | {
      readonly type: 'hearing';
      readonly scope: IScope;
      readonly hearing: Hearing;
      readonly problem: IProblem | null;
      /** Cluster and namespace, as people call them. */
      readonly place: string;
    }
  | {
      /** Which place a scope means that leaves it open. */
      readonly type: 'named';
      readonly scope: IScope;
      readonly named: IScope;
    }
  | {
      readonly type: 'tables';
      readonly scope: IScope;
      /** True when everything known before is void. */
      readonly reset: boolean;
      readonly put: { readonly [T in TableName]?: readonly ITables[T][] };
      readonly drop: { readonly [T in TableName]?: readonly string[] };
    };

/** What this package sends: which cluster the page looks at, null when nobody looks. */
export interface ILook {
  readonly type: 'look';
  readonly scope: IScope | null;
}
