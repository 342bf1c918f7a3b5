/** One cluster as this page knows it: four tables, kept up to date by the server's messages. */
import { Hearing, IProblem, IScope, ISlice, ITables, Message, TableName } from './wire';

const TABLES: readonly TableName[] = ['slices', 'services', 'proxies', 'jobs'];

type Rows<T> = readonly T[];

/** Rows in a stable order. A row that did not change stays the same object, so that its picture is not drawn again. */
export class Cluster {
  constructor(readonly scope: IScope) {}

  hearing: Hearing = 'loading';
  problem: IProblem | null = null;
  place = '';
  /** Where this is, by name: `scope` may leave it to the server. */
  named: IScope | null = null;

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

/** Whether two rows make the same picture: names of pods and nodes are not drawn. */
export function looksLike(one: ISlice, other: ISlice): boolean {
  return (
    one === other ||
    (one.id === other.id &&
      one.number === other.number &&
      one.instance_type === other.instance_type &&
      one.health === other.health &&
      one.holder?.session === other.holder?.session &&
      one.holder?.user === other.holder?.user &&
      one.holder?.mine === other.holder?.mine &&
      one.hosts.length === other.hosts.length &&
      one.hosts.every((host, index) => host.health === other.hosts[index].health && host.chips === other.hosts[index].chips))
  );
}

/** Numbers within ids count as numbers: slice 10 comes after slice 9. */
const collator = new Intl.Collator('en', { numeric: true });

function byId(one: { readonly id: string }, other: { readonly id: string }): number {
  return collator.compare(one.id, other.id);
}
