/**
 * The state of one cluster: four tables, kept up to date by the server's messages.
 *
 * Each message carries the identity of its cluster. Rows of one cluster must never appear under another's name, so a
 * change of identity empties the tables. When the server stops sending, the rows stay and are marked as old.
 */
import { IScope } from './scope';
import { IProblem, ISlice, ITables, Message, TableName, WatchState } from './wire';

const TABLES: readonly TableName[] = ['slices', 'services', 'proxies', 'jobs'];

type Rows<T> = readonly T[];
type IRow = ITables[TableName];

/** Rows in a stable order. An unchanged row stays the same object, so that React does not render it again. */
export class Cluster {
  constructor(scope: IScope) {
    this._scope = scope;
  }

  /** The requested scope; it may leave the choice of the cluster to the server. */
  get scope(): IScope {
    return this._scope;
  }

  /** Identifies the cluster and namespace of the rows; empty while they are not known. */
  get identity(): string {
    return this._identity;
  }

  watch: WatchState = 'loading';
  problem: IProblem | null = null;
  place = '';
  /** The same place as `scope`, by explicit names; null until the server has resolved it. */
  named: IScope | null = null;

  /** When the rows stopped being up to date, in seconds since the epoch; null while they are, or without rows. */
  get staleSince(): number | null {
    return this.watch === 'live' || !this._asOf ? null : this._asOf;
  }

  /**
   * Change the scope. The rows stay until the server reports the identity: when a notebook disconnects, its scope changes
   * but not the cluster, and the map should not flicker.
   */
  moveTo(scope: IScope): void {
    this._scope = scope;
    this.named = null;
    this.pause();
  }

  /** Mark the rows as old until the server sends new ones. */
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
      this._sorted.delete(table);
    }
  }

  rows<T extends TableName>(table: T): Rows<ITables[T]> {
    let sorted = this._sorted.get(table);
    if (!sorted) {
      sorted = [...this._maps[table].values()].sort(byId);
      this._sorted.set(table, sorted);
    }
    return sorted as Rows<ITables[T]>;
  }

  find<T extends TableName>(table: T, id: string): ITables[T] | undefined {
    return this._maps[table].get(id);
  }

  apply(message: Extract<Message, { type: 'tables' }>): void {
    this._identify(message.identity);
    this._asOf = message.as_of;
    for (const table of TABLES) {
      const map: Map<string, IRow> = this._maps[table];
      const put = message.put[table] ?? [];
      const drop = message.drop[table] ?? [];
      if (!message.reset && !put.length && !drop.length) {
        continue;
      }
      const sorted = this._sorted.get(table);
      const sameIds = !message.reset && !drop.length && put.every(row => map.has(row.id));
      if (message.reset) {
        map.clear();
      }
      drop.forEach(id => map.delete(id));
      put.forEach(row => map.set(row.id, row));
      // Keep the order when no row was added or removed: sorting a thousand names is the slowest part of an update.
      if (sorted && sameIds) {
        this._sorted.set(
          table,
          sorted.map(row => map.get(row.id) ?? row)
        );
      } else {
        this._sorted.delete(table);
      }
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
  /** Sorted rows of each table, until rows are added or removed. */
  private readonly _sorted = new Map<TableName, Rows<IRow>>();
}

/** Return whether two rows look the same. Names of pods and nodes are not drawn, and holders are passed separately. */
export function looksLike(one: ISlice, other: ISlice): boolean {
  return (
    one === other ||
    (one.id === other.id &&
      one.number === other.number &&
      one.instance_type === other.instance_type &&
      one.health === other.health &&
      one.availability === other.availability &&
      one.hosts.length === other.hosts.length &&
      one.hosts.every(
        (host, index) => host.health === other.hosts[index].health && host.chips === other.hosts[index].chips
      ))
  );
}

/** Compares digits within ids as numbers, so that slice 10 comes after slice 9. */
const collator = new Intl.Collator('en', { numeric: true });

function byId(one: { readonly id: string }, other: { readonly id: string }): number {
  return collator.compare(one.id, other.id);
}
