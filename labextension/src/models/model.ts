/**
 * Everything that the page knows: sessions, their events, and the cluster in view. Messages come in, signals go out;
 * nothing here sends a request.
 */
import { ISignal, Signal } from '@lumino/signaling';

import { Cluster, sameScope } from './cluster';
import { Holdings } from './holdings';
import { IEvent, IScope, ISession, Message } from './wire';

/** The state of the connection between this page and the server. */
export type Link =
  | { readonly state: 'connecting' }
  | { readonly state: 'open' }
  /** The connection broke; it is being made again. */
  | { readonly state: 'broken' }
  /** The server has no such extension. */
  | { readonly state: 'missing' }
  /** The server refused this user. */
  | { readonly state: 'refused' }
  | { readonly state: 'differs'; readonly server: string; readonly page: string };

/** Newest events that are kept of a session. */
export const REMEMBERED = 1000;

/** The notebook in front. */
export interface IFront {
  readonly path: string;
  readonly kernelId: string;
}

/** What changed, so that a view draws only what it shows. */
export type Facet = 'link' | 'sessions' | 'events' | 'cluster' | 'front';

export class Model {
  constructor(readonly version: string) {}

  get changed(): ISignal<this, Facet> {
    return this._changed;
  }

  /** Each new event of a session, once; those that happened before the page was opened are left out. */
  get happened(): ISignal<this, { session: ISession; event: IEvent }> {
    return this._happened;
  }

  link: Link = { state: 'connecting' };
  user = '';
  sessions: readonly ISession[] = [];
  cluster: Cluster | null = null;
  /** Shortest time between two signals about the cluster, in seconds. */
  refresh = 0;
  front: IFront | null = null;

  /** The session of the notebook in front. */
  get session(): ISession | null {
    const front = this.front;
    if (!front) {
      return null;
    }
    return (
      last(this.sessions, session => !!front.kernelId && session.kernel_id === front.kernelId) ??
      last(this.sessions, session => !session.kernel_id && !!front.path && session.notebook === front.path) ??
      null
    );
  }

  /** The session that the notebook in front had last, for its timeline; null while it has another. */
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

  /** Whether news from the server arrive; what is shown is otherwise what was known before. */
  get linked(): boolean {
    return this.link.state === 'open' || this.link.state === 'differs';
  }

  /** When what is shown stopped being up to date, in seconds since the epoch; null while it is. */
  get staleSince(): number | null {
    return this.linked ? (this.cluster?.staleSince ?? null) : this._unlinkedSince;
  }

  /** Whether no cluster was ever set up here, and no session has one of its own. */
  get nothingSetUp(): boolean {
    return this.linked && !this.sessions.length && !!this.cluster?.problem?.nothing_set_up;
  }

  /** Whether the rows of the cluster are what is there now: only then does an empty table mean that there is nothing. */
  get live(): boolean {
    return this.linked && this.cluster?.watch === 'live';
  }

  /** Who holds which slice of the cluster in view. */
  get holdings(): Holdings {
    return new Holdings(this.session, this.sessions, this.cluster?.rows('proxies') ?? []);
  }

  events(session: string): readonly IEvent[] {
    return this._events.get(session) ?? NOTHING;
  }

  /** Says which notebook each kernel belongs to, by kernel id: a notebook may be renamed while it is connected. */
  setNotebooks(notebooks: ReadonlyMap<string, string>): void {
    this._notebooks = notebooks;
    const renamed = this.sessions.map(session => this._named(session));
    if (renamed.some((session, index) => session !== this.sessions[index])) {
      this.sessions = renamed;
      this._changed.emit('sessions');
    }
  }

  setLink(link: Link): void {
    const before = this.linked;
    this.link = link;
    if (before && !this.linked) {
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

  /** Says which cluster the page is about to look at; null while it looks at none. */
  setScope(scope: IScope | null): void {
    if (!scope) {
      // The server sends nothing until the page looks again: until then these are old rows.
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
        this.user = message.user;
        this.setLink(
          message.version === this.version
            ? { state: 'open' }
            : { state: 'differs', server: message.version, page: this.version }
        );
        break;
      case 'sessions':
        this._setSessions(message);
        break;
      case 'events':
        this._addEvents(message);
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

  /** At once when there is something new altogether, else no sooner than `refresh` allows. */
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

  private _setSessions({ sessions, ended }: Extract<Message, { type: 'sessions' }>): void {
    this.sessions = sessions.map(session => this._named(session));
    this._ended = ended.map(session => this._named(session));
    // A timeline is read when its session has just ended, to learn why.
    const known = new Set([...sessions, ...ended].map(session => session.id));
    for (const id of this._events.keys()) {
      if (!known.has(id)) {
        this._events.delete(id);
      }
    }
    this._changed.emit('sessions');
  }

  private _addEvents({ session: id, reset, news, events }: Extract<Message, { type: 'events' }>): void {
    const before = reset ? [] : this.events(id);
    this._events.set(id, [...before, ...events].slice(-REMEMBERED));
    this._changed.emit('events');
    const session = this.sessions.find(each => each.id === id);
    if (session && news) {
      events.forEach(event => this._happened.emit({ session, event }));
    }
  }

  private _notebooks: ReadonlyMap<string, string> = new Map();
  private _ended: readonly ISession[] = [];
  private _unlinkedSince: number | null = null;
  private _emitted = 0;
  private _emitting: ReturnType<typeof setTimeout> | undefined;
  private readonly _events = new Map<string, readonly IEvent[]>();
  private readonly _changed = new Signal<this, Facet>(this);
  private readonly _happened = new Signal<this, { session: ISession; event: IEvent }>(this);
}

const NOTHING: readonly IEvent[] = [];

function last<T>(items: readonly T[], fits: (item: T) => boolean): T | undefined {
  return [...items].reverse().find(fits);
}
