/**
 * The holder and the name of each slice. The service numbers its slices, and JAX numbers the slices of one session, so a
 * slice has two numbers: the page shows the service's, with JAX's beside it where they differ.
 */
import { ITrans } from './trans';
import { ISession } from './sessionrows';
import { IProxy, IReclaimable, ISlice } from './wire';

/** The holder of a slice, relative to the notebook in front; `unknown` while it is not known whether it has one. */
export type Owner = 'this' | 'mine' | 'other' | 'unknown' | 'free';

/** The holder of one slice. */
export interface IHolding {
  readonly owner: Owner;
  /** JAX's index in the notebook in front; null if that notebook does not hold the slice. */
  readonly index: number | null;
  /** Whether the slice is down for its holder. The service may report it as free, but the session still waits for it. */
  readonly lost: boolean;
  /** The other user's name, or the path of this user's other notebook; empty if unknown. */
  readonly holder: string;
  /** When it was taken, in seconds since the epoch; 0 if unknown. */
  readonly since: number;
  /** Set while the holder is silent, and the slice is kept only until it is needed. */
  readonly reclaimable: IReclaimable | null;
}

const FREE: IHolding = { owner: 'free', index: null, lost: false, holder: '', since: 0, reclaimable: null };

const UNKNOWN: IHolding = { ...FREE, owner: 'unknown' };

/** The part of a session that says which slices it holds. */
export type Claimant = Pick<ISession, 'id' | 'namespace' | 'service' | 'slices' | 'notebook'>;

/** The holders of one cluster's slices. Cheap to construct; `of` is called for each of up to a thousand slices. */
export class Holdings {
  /**
   * @param front The session of the notebook in front.
   * @param sessions All sessions of this machine, whatever their cluster.
   * @param proxies Those of the cluster.
   * @param hasFront Whether a notebook is in front, so that the user's further ones are the others.
   */
  constructor(
    private readonly _front: Claimant | null,
    sessions: readonly Claimant[],
    proxies: readonly Pick<IProxy, 'session'>[],
    readonly hasFront = true
  ) {
    const here = new Set(proxies.map(proxy => proxy.session));
    for (const session of sessions) {
      if (session.notebook) {
        // A session has the notebook's present path; a slice's holder has the path at the time of connecting.
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
      return slice.availability === 'ready' ? UNKNOWN : FREE;
    }
    const owner = session === this._front?.id ? 'this' : !slice.holder || slice.holder.mine ? 'mine' : 'other';
    const notebook = this._notebooks.get(session) || slice.holder?.notebook || '';
    return {
      owner,
      index: owner === 'this' && claim?.session.id === session ? claim.index : null,
      lost: claim?.session.id === session && !claim.up,
      holder: owner === 'other' ? slice.holder?.user || session : owner === 'mine' ? notebook : '',
      since: slice.holder?.since ?? 0,
      reclaimable: slice.holder?.reclaimable ?? null
    };
  }

  private readonly _claims = new Map<string, { session: Claimant; index: number; up: boolean }>();
  private readonly _notebooks = new Map<string, string>();
}

/** Return "slice 1 (your 0)", or "slice 1" if JAX's index is equal or the slice is not this notebook's. */
export function sliceName(trans: ITrans, number: number | null, index: number | null): string {
  if (number === null) {
    return trans.__('your slice %1', index ?? '?');
  }
  return index === null || index === number
    ? trans.__('slice %1', number)
    : trans.__('slice %1 (your %2)', number, index);
}

/** Name the holder; empty if there is none. */
export function ownerWord(trans: ITrans, holding: IHolding): string {
  switch (holding.owner) {
    case 'this':
      return trans.__('this notebook');
    case 'mine':
      return holding.holder
        ? trans.__('my other notebook %1', baseName(holding.holder))
        : trans.__('my other notebooks');
    case 'other':
      return holding.holder;
    case 'unknown':
      return trans.__('not known yet');
    case 'free':
      return '';
  }
}

export function sameHolding(one: IHolding, other: IHolding): boolean {
  return (
    one === other ||
    (one.owner === other.owner &&
      one.index === other.index &&
      one.lost === other.lost &&
      one.holder === other.holder &&
      one.reclaimable?.silent_since === other.reclaimable?.silent_since)
  );
}

export function baseName(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}
