/**
 * One cluster as this page knows it: four tables, kept up to date by the server's messages.
 *
 * Every message names the cluster that it is about. Rows of one cluster must never stand under another's name, so a
 * change of that identity empties the tables; rows whose source is silent stay, but are known to be old.
 */
import { IProblem, IScope, ISlice, ITables, Message, TableName, WatchState } from './wire';

const TABLES: readonly TableName[] = ['slices', 'services', 'proxies', 'jobs'];

type Rows<T> = readonly T[];

/** Rows in a stable order. A row that did not change stays the same object, so that its picture is not drawn again. */
export class Cluster {
  constructor(scope: IScope) {
    this._scope = scope;
  }

  /** What the page asked for; it may leave the choice of the cluster to the server. */
  get scope(): IScope {
    return this._scope;
  }

  watch: WatchState = 'loading';
  problem: IProblem | null = null;
  place = '';
  /** The same place as `scope`, by its name; null until the server has said it. */
  named: IScope | null = null;

  /** When the rows stopped being up to date, in seconds since the epoch; null while they are, or there are none. */
  get staleSince(): number | null {
    return this.watch === 'live' || !this._asOf ? null : this._asOf;
  }

  /**
   * Looks at the same or another cluster under another scope. The rows stay until the server says which one it is: a
   * notebook that disconnects changes the scope and not the cluster, and its map should not vanish and come back.
   */
  moveTo(scope: IScope): void {
    this._scope = scope;
    this.named = null;
    this.pause();
  }

  /** Says that no news come until the server answers again. */
  pause(): void {
    if (this.watch === 'live') {
      this._asOf = Date.now() / 1000;
    }
    this.watch = 'loading';
    this.problem = null;
  }

  setName(message: Extract<Message, { type: 'named' }>): void {
    this._identify(message.identity);
    this.named = message.named;
  }

  setWatch(message: Extract<Message, { type: 'watch' }>): void {
    this._identify(message.identity);
    this.watch = message.watch;
    this.problem = message.problem;
    this.place = message.place;
    this._asOf = message.as_of;
  }

  private _identify(identity: string): void {
    if (identity === this._identity) {
      return;
    }
    this._identity = identity;
    this._asOf = 0;
    for (const table of TABLES) {
      this._maps[table].clear();
      delete this._sorted[table];
    }
  }

  rows<T extends TableName>(table: T): Rows<ITables[T]> {
    let sorted = this._sorted[table] as Rows<ITables[T]> | undefined;
    if (!sorted) {
      sorted = [...this._maps[table].values()].sort(byId) as unknown as Rows<ITables[T]>;
      (this._sorted as Record<string, unknown>)[table] = sorted;
    }
    return sorted;
  }

  find<T extends TableName>(table: T, id: string): ITables[T] | undefined {
    return this._maps[table].get(id) as ITables[T] | undefined;
  }

  apply(message: Extract<Message, { type: 'tables' }>): void {
    this._identify(message.identity);
    this._asOf = message.as_of;
    for (const table of TABLES) {
      const map = this._maps[table] as Map<string, { readonly id: string }>;
      const put = message.put[table] ?? [];
      const drop = message.drop[table] ?? [];
      if (!message.reset && !put.length && !drop.length) {
        continue;
      }
      const sorted = this._sorted[table] as Rows<{ readonly id: string }> | undefined;
      const sameIds = !message.reset && !drop.length && put.every(row => map.has(row.id));
      if (message.reset) {
        map.clear();
      }
      drop.forEach(id => map.delete(id));
      put.forEach(row => map.set(row.id, row));
      // Sorting a thousand names takes longer than anything else that an update does.
      (this._sorted as Record<string, unknown>)[table] = sameIds ? sorted?.map(row => map.get(row.id)!) : undefined;
    }
  }

  private _scope: IScope;
  private _identity = '';
  private _asOf = 0;
  private readonly _maps: { [T in TableName]: Map<string, ITables[T]> } = {
    slices: new Map(),
    services: new Map(),
    proxies: new Map(),
    jobs: new Map()
  };
  private readonly _sorted: { [T in TableName]?: Rows<ITables[T]> } = {};
}

/** Whether two scopes name the same place. */
export function sameScope(one: IScope | null, other: IScope | null): boolean {
  return (
    one === other ||
    (!!one &&
      !!other &&
      one.local === other.local &&
      one.context === other.context &&
      one.namespace === other.namespace &&
      one.session === other.session)
  );
}

/** Whether two rows make the same picture: names of pods and nodes are not drawn, and holders come in separately. */
export function looksLike(one: ISlice, other: ISlice): boolean {
  return (
    one === other ||
    (one.id === other.id &&
      one.number === other.number &&
      one.instance_type === other.instance_type &&
      one.health === other.health &&
      one.hosts.length === other.hosts.length &&
      one.hosts.every((host, index) => host.health === other.hosts[index].health && host.chips === other.hosts[index].chips))
  );
}

/** Numbers within ids count as numbers: slice 10 comes after slice 9. */
const collator = new Intl.Collator('en', { numeric: true });

function byId(one: { readonly id: string }, other: { readonly id: string }): number {
  return collator.compare(one.id, other.id);
}
