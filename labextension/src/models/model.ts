/**
 * Everything that the page knows: sessions, their events, and the cluster that is looked at. Messages come in, signals
 * go out; nothing here asks the server for anything.
 */
import { ISignal, Signal } from '@lumino/signaling';

import { Cluster, sameScope } from './cluster';
import { IEvent, IScope, ISession, Message } from './wire';

/** How this page and the server get along. */
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

  /** Each new event of a session, once; those from before the page was opened are left out. */
  get happened(): ISignal<this, { session: ISession; event: IEvent }> {
    return this._happened;
  }

  link: Link = { state: 'connecting' };
  user = '';
  sessions: readonly ISession[] = [];
  cluster: Cluster | null = null;
  /** Seconds between two tellings of a cluster's changes, at least. */
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
    this.link = link;
    this._changed.emit('link');
  }

  setFront(front: IFront | null): void {
    if (front?.path !== this.front?.path || front?.kernelId !== this.front?.kernelId) {
      this.front = front;
      this._changed.emit('front');
    }
  }

  /** Says which cluster the page is about to look at. */
  setScope(scope: IScope | null): void {
    if (scope && !sameScope(scope, this.cluster?.scope ?? null)) {
      this.cluster = new Cluster(scope);
      this._changed.emit('cluster');
    }
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
        this._setSessions(message.sessions);
        break;
      case 'events':
        this._addEvents(message);
        break;
      case 'hearing':
        if (this.cluster && sameScope(message.scope, this.cluster.scope)) {
          this.cluster.hearing = message.hearing;
          this.cluster.problem = message.problem;
          this.cluster.place = message.place;
          this._changed.emit('cluster');
        }
        break;
      case 'named':
        if (this.cluster && sameScope(message.scope, this.cluster.scope)) {
          this.cluster.named = message.named;
          this._changed.emit('cluster');
        }
        break;
      case 'tables':
        if (this.cluster && sameScope(message.scope, this.cluster.scope)) {
          this.cluster.apply(message);
          this._tellCluster(message.reset);
        }
        break;
    }
  }

  /** At once when there is something new altogether, else no sooner than `refresh` allows. */
  private _tellCluster(now: boolean): void {
    const wait = this._told + this.refresh * 1000 - Date.now();
    if (now || wait <= 0) {
      clearTimeout(this._telling);
      this._telling = undefined;
      this._told = Date.now();
      this._changed.emit('cluster');
    } else {
      this._telling ??= setTimeout(() => this._tellCluster(true), wait);
    }
  }

  private _named(session: ISession): ISession {
    const notebook = this._notebooks.get(session.kernel_id);
    return notebook && notebook !== session.notebook ? { ...session, notebook } : session;
  }

  private _setSessions(sessions: readonly ISession[]): void {
    this.sessions = sessions.map(session => this._named(session));
    const known = new Set(sessions.map(session => session.id));
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
  private _told = 0;
  private _telling: ReturnType<typeof setTimeout> | undefined;
  private readonly _events = new Map<string, readonly IEvent[]>();
  private readonly _changed = new Signal<this, Facet>(this);
  private readonly _happened = new Signal<this, { session: ISession; event: IEvent }>(this);
}

const NOTHING: readonly IEvent[] = [];

function last<T>(items: readonly T[], fits: (item: T) => boolean): T | undefined {
  return [...items].reverse().find(fits);
}
