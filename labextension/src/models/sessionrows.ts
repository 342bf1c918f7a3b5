/** A session as the server extension sends it. The Python side is server/sessionwatch.py: change both. */
import { IScope } from './scope';

/** The color and the mark beside a word; never the only sign of a state. The server chooses it for each row and event. */
export type Tone = 'ok' | 'wait' | 'warn' | 'fail' | 'none';

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

/** The kind of an event; the same words as Python's `EventKind`. An elastic run itself comes in a message of its own. */
export type EventKind =
  | 'stage'
  | 'state'
  | 'slice-placed'
  | 'slice-down'
  | 'slice-healed'
  | 'proxy-lost'
  | 'supervisor-lost'
  | 'arrays-lost'
  | 'unused'
  | 'not-suspended'
  | 'warning'
  | 'elastic';

/** An event of a session. */
export interface IEvent {
  readonly kind: EventKind;
  readonly message: string;
  readonly tone: Tone;
  /** Seconds since the epoch. */
  readonly at: number;
  readonly data: { readonly [key: string]: unknown };
}

/** The phase of an elastic training run. */
export type Phase = 'training' | 'recovering' | 'waiting' | 'done' | 'stopped';

/** A run in the list of a session's elastic training runs. */
export interface IRunSummary {
  /** Its id; another run of the same session has another. */
  readonly run: string;
  /** The name of its training function; empty if unknown. */
  readonly name: string;
  readonly phase: Phase;
  readonly tone: Tone;
  /** How far it is, in words; empty for a loop of one's own that does not note its steps. */
  readonly progress: string;
  /** Seconds since the epoch. */
  readonly begun: number;
  readonly ended: number | null;
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

/** The commands of a session, as Python's `SessionCommand`. */
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

/** `asks`: it acts once the user has read what it costs. `waits`: what it needs comes by itself. */
export type Does = 'does' | 'asks' | 'waits' | 'refuses';

/** What a command does with a session as it is now; the table is pathways_jupyter/session/verdicts.py. */
export interface IVerdict {
  readonly does: Does;
  /** What there is, and what the command costs or why it does not act; empty where it just acts. */
  readonly sentence: string;
  /** What to do instead, or to keep what it costs; empty where there is nothing to do. */
  readonly hint: string;
}

/** One notebook's connection. */
export interface ISession {
  readonly id: string;
  readonly state: SessionState;
  readonly tone: Tone;
  /** The state in words, with how much of its slices or arrays there is. */
  readonly word: string;
  /** What the state means, and what to do about it; empty where nothing is to be done. */
  readonly advice: string;
  /** What it has: names and values. */
  readonly facts: readonly (readonly [string, string])[];
  /** Start of the present state, in seconds since the epoch; a connection outlasts slices that go down. */
  readonly state_since: number;
  readonly slices: readonly ISessionSlice[];
  /** Whether its supervisor runs. */
  readonly alive: boolean;
  /** Whether it runs and has not answered for some seconds, so that the state is the last known one. */
  readonly silent: boolean;
  readonly kernel_id: string;
  readonly notebook: string;
  readonly namespace: string;
  readonly service: string;
  /** The PathwaysJob whose proxy it uses; empty for a session with a proxy of its own. */
  readonly pathways_job: string;
  /** Slices held per instance type. */
  readonly instances: { readonly [type: string]: number };
  readonly devices: number;
  readonly pod: string;
  readonly saved: ISaved | null;
  /** What each command does with it now; none for a session that has ended. */
  readonly verdicts: { readonly [command in SessionCommand]?: IVerdict };
  /** Seconds without use after which it is suspended; 0 for never. */
  readonly suspend_after: number;
  /** Since when nothing was computed, in seconds since the epoch; 0 while it is used, or was lately. */
  readonly unused_since: number;
  /** When it is suspended unless it is used before, in seconds since the epoch; 0 while that is not soon. */
  readonly suspends_at: number;
  readonly scope: IScope;
}
