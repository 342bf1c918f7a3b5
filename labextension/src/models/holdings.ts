/**
 * Whose a slice is, and what to call it. A service counts its slices and JAX counts those of one session, so the same
 * slice has two numbers: people read the service's everywhere, with JAX's beside it where the two differ.
 */
import { ITrans } from './trans';
import { IProxy, ISession, ISlice } from './wire';

/** The holder of a slice, as the notebook in front sees it. */
export type Owner = 'this' | 'mine' | 'other' | 'free';

/** One slice, and what this page knows of its holder. */
export interface IHolding {
  readonly owner: Owner;
  /** JAX's index in the notebook in front; null where that notebook does not have the slice. */
  readonly index: number | null;
  /** Whether the holder lost it: the service may call such a slice free, but its session waits for it. */
  readonly lost: boolean;
  /** The other user, or the path of one's own other notebook; empty where neither is known. */
  readonly who: string;
  /** When it was taken, in seconds since the epoch; 0 where that is not known. */
  readonly since: number;
}

const FREE: IHolding = { owner: 'free', index: null, lost: false, who: '', since: 0 };

/** As much of a session as says which slices it has. */
export type Claimant = Pick<ISession, 'id' | 'namespace' | 'service' | 'slices' | 'notebook'>;

/** Who holds which slice of one cluster. Cheap to make, and asked once for each of a thousand slices. */
export class Holdings {
  /**
   * @param front The session of the notebook in front.
   * @param sessions All sessions of this machine, whatever their cluster.
   * @param proxies Those of the cluster.
   */
  constructor(
    private readonly _front: Claimant | null,
    sessions: readonly Claimant[],
    proxies: readonly Pick<IProxy, 'session'>[]
  ) {
    const here = new Set(proxies.map(proxy => proxy.session));
    for (const session of sessions) {
      if (session.notebook) {
        // A session knows what its notebook is called now; the holder of a slice, what it was called then.
        this._notebooks.set(session.id, session.notebook);
      }
      if (session.id !== _front?.id && !here.has(session.id)) {
        continue;
      }
      for (const each of session.slices) {
        if (each.number !== null) {
          this._claims.set(`${session.namespace}/${session.service}/${each.number}`, { session, ...each });
        }
      }
    }
  }

  of(slice: ISlice): IHolding {
    const claim = this._claims.get(slice.id);
    const session = slice.holder?.session ?? (claim && !claim.up ? claim.session.id : '');
    if (!session) {
      return FREE;
    }
    const owner = session === this._front?.id ? 'this' : !slice.holder || slice.holder.mine ? 'mine' : 'other';
    const notebook = this._notebooks.get(session) || slice.holder?.notebook || '';
    return {
      owner,
      index: owner === 'this' && claim?.session.id === session ? claim.index : null,
      lost: claim?.session.id === session && !claim.up,
      who: owner === 'other' ? slice.holder!.user || session : owner === 'mine' ? notebook : '',
      since: slice.holder?.since ?? 0
    };
  }

  private readonly _claims = new Map<string, { session: Claimant; index: number; up: boolean }>();
  private readonly _notebooks = new Map<string, string>();
}

/** "slice 1 (your 0)", or "slice 1" where JAX's index is the same or the slice is not this notebook's. */
export function sliceName(trans: ITrans, number: number | null, index: number | null): string {
  if (number === null) {
    return trans.__('your slice %1', index ?? '?');
  }
  return index === null || index === number ? trans.__('slice %1', number) : trans.__('slice %1 (your %2)', number, index);
}

export function ownerWord(trans: ITrans, holding: IHolding): string {
  switch (holding.owner) {
    case 'this':
      return trans.__('this notebook');
    case 'mine':
      return holding.who ? trans.__('my other notebook %1', baseName(holding.who)) : trans.__('my other notebooks');
    case 'other':
      return holding.who;
    case 'free':
      return trans.__('free');
  }
}

export function sameHolding(one: IHolding, other: IHolding): boolean {
  return (
    one === other ||
    (one.owner === other.owner && one.index === other.index && one.lost === other.lost && one.who === other.who)
  );
}

export function baseName(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}
