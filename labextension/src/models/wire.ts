/**
 * The messages between the server extension and this package. The Python side is service/tables.py,
 * server/sessionwatch.py and server/runwatch.py: change both.
 */

/** The state of a session; the same words as Python's `SessionState`. */
export type SessionState =
  | 'starting'
  | 'waiting'
  | 'connected'
  /** Connected, but at least one of its slices is down. */
  | 'degraded'
  /** The connection to its proxy is lost; a relay keeps its arrays meanwhile. */
  | 'interrupted'
  | 'lost'
  | 'closing'
  | 'closed'
  | 'failed';

/** The health of a slice, host, service or proxy. */
export type Health = 'ready' | 'starting' | 'down';

/** Whether a session can have a slice now; `ready` if it is not known who holds it. */
export type Availability = 'free' | 'in use' | 'reclaimable' | 'ready' | 'starting' | 'down';

/** The template and the parameters of a sentence; the server's part is pathways_jupyter/base/sentences.py. */
export interface IText {
  readonly sentence: string;
  readonly values: { readonly [name: string]: string | number | ISaid | readonly ISaid[] | undefined };
}

/** A sentence of the server: in English, and for translation. */
export interface ISaid {
  readonly message: string;
  /** Missing where the text is no sentence to be translated. */
  readonly text?: IText;
}

/** An event of a session. */
export interface IEvent extends ISaid {
  readonly kind: string;
  /** Seconds since the epoch. */
  readonly at: number;
  readonly data: { readonly [key: string]: unknown };
}

/** A cluster and a namespace in it. Empty strings stand for the defaults of the server's kubeconfig. */
export interface IScope {
  readonly context: string;
  readonly namespace: string;
  /** Id of a session whose cluster is meant, when no context names that cluster. */
  readonly session: string;
  /** The embedded cluster of this machine. */
  readonly local: boolean;
}

/** A run in the list of a session's elastic training runs. */
export interface IRunSummary {
  /** Its id; another run of the same session has another. */
  readonly run: string;
  /** The name of its training function; empty if unknown. */
  readonly name: string;
  readonly phase: 'training' | 'recovering' | 'waiting' | 'done' | 'stopped';
  /** Seconds since the epoch. */
  readonly begun: number;
  readonly ended: number | null;
  /** Number of complete steps. */
  readonly step: number;
  /** Number of steps that it is to do; null if unknown. */
  readonly steps: number | null;
  /** Share of the time that went into productive steps, from 0 to 1. */
  readonly goodput: number;
  /** Number of losses that it has noticed. */
  readonly losses: number;
}

/** The elastic training run of a session that is shown, as it is now; see docs/session-protocol.md. */
export interface IElasticRun extends IRunSummary {
  /** Number of slices in use. */
  readonly slices: number;
  /** Number of slices that it may use. */
  readonly total: number;
  /** When the number of slices in use changed, in seconds since the epoch, and to what; oldest first. */
  readonly changes: readonly (readonly [number, number])[];
  /** The newest value of each metric; null for one that is not finite. */
  readonly metrics: { readonly [name: string]: number | null };
  /** The first metric over the steps: pairs of step and value. */
  readonly curve: { readonly metric: string; readonly points: readonly (readonly [number, number | null])[] };
  /** Seconds by category, in the words of ml-goodput-measurement; STEP is the productive one. */
  readonly seconds: { readonly [category: string]: number };
  /** The last runs of its kernel, oldest first, with this one; missing from an older version. */
  readonly runs?: readonly IRunSummary[];
}

/** One slice that a session holds. */
export interface ISessionSlice {
  /** The service's number of the slice, which is shown to users; null if an older proxy does not report it. */
  readonly number: number | null;
  /** JAX's `slice_index` in this session. */
  readonly index: number;
  /** Whether the slice can be used now. */
  readonly up: boolean;
}

/** One notebook's connection. */
export interface ISession {
  readonly id: string;
  readonly state: SessionState;
  /** Start of the present state, in seconds since the epoch; a connection outlasts slices that go down. */
  readonly state_since: number;
  readonly slices: readonly ISessionSlice[];
  /** Whether its supervisor runs. */
  readonly alive: boolean;
  /** Whether it runs and has not answered for some seconds, so that the state is the last known one. */
  readonly silent: boolean;
  /** The process of its supervisor. */
  readonly pid: number;
  readonly kernel_id: string;
  readonly notebook: string;
  readonly user: string;
  readonly namespace: string;
  readonly service: string;
  /** The PathwaysJob whose proxy it uses; empty for a session with a proxy of its own. */
  readonly pathways_job: string;
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
  readonly availability: Availability;
  readonly hosts: readonly IHost[];
  /** The session that has it, or has lost it and waits for it. */
  readonly holder: IHolder | null;
}

/** A Shared Pathways Service. */
export interface IService {
  readonly id: string;
  readonly name: string;
  readonly namespace: string;
  readonly address: string;
  readonly version: string;
  /** Ready when its resource manager and at least one slice are. */
  readonly health: Health;
  /** Why it is not ready, as a clause. */
  readonly reason: string;
  readonly capacity: readonly ICapacity[];
  /** Pod of its resource manager; empty while there is none. */
  readonly pod: string;
  /** Whether its cluster is the embedded one of a machine, where slices can be broken on purpose. */
  readonly embedded: boolean;
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
export interface IProxy {
  readonly id: string;
  readonly session: string;
  readonly user: string;
  readonly service: string;
  readonly notebook: string;
  readonly health: Health;
  readonly slices: readonly string[];
  readonly created: number;
  /** When the cluster ends it at the latest, in seconds since the epoch; 0 if that is not known. */
  readonly until: number;
  /** Whether it waits for slices that others hold. */
  readonly waiting: boolean;
  readonly mine: boolean;
  readonly pod: string;
  /** Null unless its session is silent. */
  readonly reclaimable: IReclaimable | null;
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
  readonly job: {
    readonly name: string;
    readonly namespace: string;
    readonly state: string;
    readonly reason: string;
    readonly restarts: number;
    readonly instance_type: string;
    readonly slices: number;
    /** Whether a notebook can attach to its proxy. */
    readonly headless: boolean;
    readonly kind: string;
    readonly created: number;
    /** The queue of Kueue's that it is in; empty for none. */
    readonly queue: string;
  };
  readonly pods: readonly IJobPod[];
  readonly events: readonly IJobEvent[];
}

/** One host of a run on many hosts, as last known. */
export interface IRunHost {
  /** Slice and worker, as in `0-3`. */
  readonly label: string;
  readonly name: string;
  /** In Python's words: waiting, connecting, receiving files, ready, running, reconnecting, exited, stopped, failed, lost. */
  readonly phase: string;
  /** Whether nothing more will happen on the host. */
  readonly over: boolean;
  readonly code: number | null;
  readonly last_line: string;
  /** When the command started, in seconds since the epoch; 0 before. */
  readonly began: number;
  readonly ended: number;
  /** Bytes that the host has received, of `total`. */
  readonly sent: number;
  readonly total: number;
  /** What went wrong. */
  readonly message: string;
  readonly hint: string;
}

/** A run of a command on many hosts, started on the server's machine. */
export interface IHostsRun {
  readonly id: string;
  readonly name: string;
  readonly command: string;
  /** `left`: the process that followed it has gone without ending it. */
  readonly state: 'running' | 'detached' | 'left' | 'ended';
  /** The worst exit code; null while it is not known. */
  readonly code: number | null;
  /** Seconds since the epoch. */
  readonly started: number;
  /** 0 before the end. */
  readonly ended: number;
  /** When the states of the hosts were true; 0 if nothing is known of them. */
  readonly at: number;
  readonly hosts: readonly IRunHost[];
}

/** A failure reported by the server: what failed, and what to do next. */
export interface IProblem extends ISaid {
  readonly hint: string;
  /** The hint for translation. */
  readonly hint_text?: IText;
  /** True when no cluster is configured, which is not a failure: there is nothing to fix. */
  readonly nothing_set_up?: boolean;
  /** True when the scope's embedded cluster does not run. */
  readonly embedded_ended?: boolean;
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
  | { readonly type: 'hello'; readonly version: string; readonly user: string }
  | {
      readonly type: 'sessions';
      readonly sessions: readonly ISession[];
      /** Sessions that ended while a page of this server was open, latest last; their events are sent too. */
      readonly ended: readonly ISession[];
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
  | {
      readonly type: 'multihost';
      /** True if all earlier rows are invalid. */
      readonly reset: boolean;
      readonly put: readonly IHostsRun[];
      readonly drop: readonly string[];
    }
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

/** The message to the server: the cluster that the page shows, or null. */
export interface ILook {
  readonly type: 'look';
  readonly scope: IScope | null;
}
