/**
 * The page's state: sessions, their events, and the cluster in view. It applies the server's messages and emits signals;
 * it sends no requests.
 */
import { ISignal, Signal } from '@lumino/signaling';

import { Cluster } from './cluster';
import { IScope, sameScope } from './scope';
import { Holdings } from './holdings';
import { IElasticRun, IEvent, ISession } from './sessionrows';
import { IKernelPlace, Message } from './wire';

/** The state of the connection between this page and the server. */
export type Link =
  | { readonly state: 'connecting' }
  | { readonly state: 'open' }
  /** Open, but a message got lost: some of what is shown may be old. */
  | { readonly state: 'unreadable' }
  /** The connection broke; a new attempt is under way. */
  | { readonly state: 'broken' }
  /** The server extension is not installed. */
  | { readonly state: 'missing' }
  /** The server denied access to this user. */
  | { readonly state: 'refused' }
  | { readonly state: 'differs'; readonly server: string; readonly page: string };

/** Number of events kept for each session; older ones are dropped. */
export const EVENTS_KEPT = 1000;

/** The notebook in front. */
export interface IFront {
  readonly path: string;
  readonly kernelId: string;
}

/** The part of the model that changed, so that a view renders only for what it shows. */
export type Facet = 'link' | 'sessions' | 'events' | 'training' | 'cluster' | 'front';

export class Model {
  constructor(readonly version: string) {}

  get changed(): ISignal<this, Facet> {
    return this._changed;
  }

  /** Emits each new event of a session once; events from before the page was opened are left out. */
  get happened(): ISignal<this, { session: ISession; event: IEvent }> {
    return this._happened;
  }

  link: Link = { state: 'connecting' };
  sessions: readonly ISession[] = [];
  /** Whether the server has reported the sessions; before, an empty list means nothing. */
  sessionsKnown = false;
  cluster: Cluster | null = null;
  /** Minimum time between two `cluster` signals, in seconds. */
  refresh = 0;
  front: IFront | null = null;
  /** Whether the embedded cluster starts because the user has asked this page for it. */
  embeddedStarts = false;

  /** Whether a cell connects the notebook in front: its session is known some time later. */
  get connecting(): boolean {
    return !!this.front && this._connecting.has(this.front.path);
  }

  /** The session of the notebook in front. */
  get session(): ISession | null {
    const { front, sessions } = this;
    if (!front) {
      return null;
    }
    return (
      last(sessions, session => !!front.kernelId && session.kernel_id === front.kernelId) ??
      // After a reload, the page knows the notebook some time before it knows its kernel.
      last(
        sessions,
        session => !(front.kernelId && session.kernel_id) && !!front.path && session.notebook === front.path
      ) ??
      null
    );
  }

  /** Where the kernel of the notebook in front is; null for one on this machine. */
  get place(): IKernelPlace | null {
    return this._kernels.find(each => each.kernel_id === this.front?.kernelId) ?? null;
  }

  /** The last session of the notebook in front, for its timeline; null while it has a new one. */
  get endedSession(): ISession | null {
    const front = this.front;
    if (!front || this.session) {
      return null;
    }
    return (
      last(
        this._ended,
        session => (!!front.kernelId && session.kernel_id === front.kernelId) || session.notebook === front.path
      ) ?? null
    );
  }

  /** Whether the server sends updates; otherwise the state is the last known one. */
  get linked(): boolean {
    return isLinked(this.link);
  }

  /** When the state stopped being up to date, in seconds since the epoch; null while it is up to date. */
  get staleSince(): number | null {
    return this.linked ? (this.cluster?.staleSince ?? null) : this._unlinkedSince;
  }

  /** Whether no cluster is configured here, and no session brings its own. */
  get nothingSetUp(): boolean {
    return this.linked && !this.sessions.length && !!this.cluster?.problem?.nothing_set_up;
  }

  /** Whether there is anything to show in the sections of the panel. */
  get usable(): boolean {
    return this.link.state !== 'missing' && this.link.state !== 'refused' && !this.nothingSetUp;
  }

  /** Whether the rows are up to date. Only then does an empty table mean that the cluster has none. */
  get live(): boolean {
    return this.linked && this.cluster?.watch === 'live';
  }

  /** The holders of the slices of the cluster in view. */
  holdings(): Holdings {
    return new Holdings(this.session, this.sessions, this.cluster?.rows('proxies') ?? [], !!this.front);
  }

  events(session: string): readonly IEvent[] {
    return this._events.get(session) ?? NO_EVENTS;
  }

  /** The newest training run of a session; null if it had none. */
  training(session: string): IElasticRun | null {
    return this._trainings.get(session) ?? null;
  }

  /** Set the notebook paths by kernel id. A notebook may be renamed while it is connected. */
  setNotebooks(notebooks: ReadonlyMap<string, string>): void {
    this._notebooks = notebooks;
    const renamed = this.sessions.map(session => this._named(session));
    if (renamed.some((session, index) => session !== this.sessions[index])) {
      this.sessions = renamed;
      this._changed.emit('sessions');
    }
  }

  setLink(link: Link): void {
    const broken = isLinked(this.link) && !isLinked(link);
    this.link = link;
    if (broken) {
      this._unlinkedSince = Date.now() / 1000;
      this.cluster?.pause();
    }
    this._changed.emit('link');
  }

  setFront(front: IFront | null): void {
    if (front?.path !== this.front?.path || front?.kernelId !== this.front?.kernelId) {
      this.front = front;
      this._changed.emit('front');
    }
  }

  /** Set the paths of the notebooks in which a cell that connects them is scheduled or runs. */
  setConnecting(paths: ReadonlySet<string>): void {
    this._connecting = paths;
    this._changed.emit('front');
  }

  /** Note that the user has started the embedded cluster, or that it runs or has failed to. */
  setEmbeddedStarts(starts: boolean): void {
    this.embeddedStarts = starts;
    this._changed.emit('cluster');
  }

  /** Set the cluster in view; null while the page shows none. */
  setScope(scope: IScope | null): void {
    if (!scope) {
      // The server stops sending updates, so from now on these rows are old.
      this.cluster?.pause();
    } else if (!this.cluster) {
      this.cluster = new Cluster(scope);
    } else if (sameScope(scope, this.cluster.scope)) {
      return;
    } else {
      this.cluster.moveTo(scope);
    }
    this._changed.emit('cluster');
  }

  apply(message: Message): void {
    switch (message.type) {
      case 'hello':
        this.setLink(
          message.version === this.version
            ? { state: 'open' }
            : { state: 'differs', server: message.version, page: this.version }
        );
        break;
      case 'unreadable':
        this.setLink({ state: 'unreadable' });
        break;
      case 'sessions':
        this._setSessions(message);
        break;
      case 'events':
        this._addEvents(message);
        break;
      case 'elastic':
        this._trainings.set(message.session, message.run);
        this._changed.emit('training');
        break;
      case 'watch':
        if (this.cluster && sameScope(message.scope, this.cluster.scope)) {
          this.cluster.setWatch(message);
          this._changed.emit('cluster');
        }
        break;
      case 'named':
        if (this.cluster && sameScope(message.scope, this.cluster.scope)) {
          this.cluster.setName(message);
          this._changed.emit('cluster');
        }
        break;
      case 'tables':
        if (this.cluster && sameScope(message.scope, this.cluster.scope)) {
          this.cluster.apply(message);
          this._emitCluster(message.reset);
        }
        break;
    }
  }

  /** Emit now if `now` is set, otherwise at most once in `refresh` seconds. No update is lost. */
  private _emitCluster(now: boolean): void {
    const wait = this._emitted + this.refresh * 1000 - Date.now();
    if (now || wait <= 0) {
      clearTimeout(this._emitting);
      this._emitting = undefined;
      this._emitted = Date.now();
      this._changed.emit('cluster');
    } else {
      this._emitting ??= setTimeout(() => this._emitCluster(true), wait);
    }
  }

  private _named(session: ISession): ISession {
    const notebook = this._notebooks.get(session.kernel_id);
    return notebook && notebook !== session.notebook ? { ...session, notebook } : session;
  }

  private _setSessions({ sessions, ended, kernels = [] }: Extract<Message, { type: 'sessions' }>): void {
    this.sessionsKnown = true;
    this.sessions = sessions.map(session => this._named(session));
    this._ended = ended.map(session => this._named(session));
    this._kernels = kernels;
    // Keep the events of ended sessions: users read the timeline right after a session ended, to see why.
    const ids = new Set([...sessions, ...ended].map(session => session.id));
    for (const id of this._events.keys()) {
      if (!ids.has(id)) {
        this._events.delete(id);
      }
    }
    for (const id of this._trainings.keys()) {
      if (!ids.has(id)) {
        this._trainings.delete(id);
      }
    }
    this._changed.emit('sessions');
  }

  private _addEvents({ session: id, reset, news, events }: Extract<Message, { type: 'events' }>): void {
    const before = reset ? [] : this.events(id);
    this._events.set(id, [...before, ...events].slice(-EVENTS_KEPT));
    this._changed.emit('events');
    const session = this.sessions.find(each => each.id === id);
    if (session && news) {
      events.forEach(event => this._happened.emit({ session, event }));
    }
  }

  private _notebooks: ReadonlyMap<string, string> = new Map();
  private _connecting: ReadonlySet<string> = new Set();
  private _ended: readonly ISession[] = [];
  private _kernels: readonly IKernelPlace[] = [];
  private _unlinkedSince: number | null = null;
  private _emitted = 0;
  private _emitting: ReturnType<typeof setTimeout> | undefined;
  private readonly _events = new Map<string, readonly IEvent[]>();
  private readonly _trainings = new Map<string, IElasticRun>();
  private readonly _changed = new Signal<this, Facet>(this);
  private readonly _happened = new Signal<this, { session: ISession; event: IEvent }>(this);
}

const NO_EVENTS: readonly IEvent[] = [];

function isLinked(link: Link): boolean {
  return link.state === 'open' || link.state === 'unreadable' || link.state === 'differs';
}

function last<T>(items: readonly T[], fits: (item: T) => boolean): T | undefined {
  return [...items].reverse().find(fits);
}
