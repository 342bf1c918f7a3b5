/** A session as the server extension sends it. The Python side is server/sessionwatch.py: change both. */
import { IScope } from './scope';

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
  /** Its arrays are being saved, so that its proxy can be removed. */
  | 'suspending'
  /** Its arrays are saved, and its slices free. */
  | 'suspended'
  /** It has a new proxy, and its saved arrays are not all back on it. */
  | 'resuming'
  | 'closing'
  | 'closed'
  | 'failed';

/** An event of a session. */
export interface IEvent {
  readonly kind: string;
  readonly message: string;
  /** Seconds since the epoch. */
  readonly at: number;
  readonly data: { readonly [key: string]: unknown };
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

/** The arrays that a kernel has on the devices of its session. */
export interface IArrays {
  readonly count: number;
  readonly bytes: number;
}

/** The arrays of a session that was suspended, until its kernel has restored them. */
export interface ISaved extends IArrays {
  /** Address in a bucket. */
  readonly place: string;
  /** When the session was suspended, in seconds since the epoch. */
  readonly at: number;
}

/** How far arrays are that are saved, or put back. */
export interface ITransfer {
  /** Bytes that are there. */
  readonly done: number;
  readonly total: number;
  /** About how many seconds the rest takes; null while that is unknown. */
  readonly left: number | null;
}

/** The commands of a session, as Python's `Command`. */
export type SessionCommand =
  | 'connect'
  | 'connect-otherwise'
  | 'reconnect'
  | 'suspend'
  | 'resume'
  | 'disconnect'
  | 'save'
  | 'load'
  /** A trace, a cell on its hosts. */
  | 'run'
  | 'use';

/** What a command does with a session as it is now; the table is pathways_jupyter/session/verdicts.py. */
export interface IVerdict {
  /** `asks`: it acts once the user has read what it costs. `waits`: what it needs comes by itself. */
  readonly does: 'does' | 'asks' | 'waits' | 'refuses';
  /** What there is, and what the command costs or why it does not act; empty where it just acts. */
  readonly sentence: string;
  /** What to do instead, or to keep what it costs; empty where there is nothing to do. */
  readonly hint: string;
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
  /** Seconds to the cluster and back, as its supervisor has last measured it; 0 where that is not known now. */
  readonly round_trip: number;
  readonly saved: ISaved | null;
  /** While arrays are saved or put back. */
  readonly transfer: ITransfer | null;
  /** What each command does with it now; none for a session that has ended. */
  readonly verdicts: { readonly [command in SessionCommand]?: IVerdict };
  /** Seconds without use after which it is suspended; 0 for never. */
  readonly suspend_after: number;
  /** Since when nothing was computed, in seconds since the epoch; 0 while it is used, or was lately. */
  readonly unused_since: number;
  /** When it is suspended unless it is used before, in seconds since the epoch; 0 while that is not soon. */
  readonly suspends_at: number;
  readonly created: number;
  readonly scope: IScope;
}
