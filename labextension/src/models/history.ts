/**
 * The last hour of the slices, from what this page has received, for the replay under the map.
 *
 * While the panel is hidden or the server does not answer, the page receives nothing. What is remembered then says so:
 * the replay must not claim to know what was not seen.
 */
import { looksLike } from './cluster';
import { Model } from './model';
import { ISession } from './sessionrows';
import { IProxy, ISlice } from './wire';

export const KEPT_SECONDS = 3600;
/** Number of moments kept. Beyond it, older ones are thinned out. A moment of a thousand slices takes about 10 kB. */
export const MOMENTS_KEPT = 600;

/** What was known from one moment to the next one. */
export interface IMoment {
  /** Seconds since the epoch. */
  readonly at: number;
  readonly slices: readonly ISlice[];
  readonly proxies: readonly IProxy[];
  readonly sessions: readonly ISession[];
  /** Whether the page was up to date; if not, this is what it knew last. */
  readonly seen: boolean;
}

export class History {
  /** @param _now Seconds since the epoch. */
  constructor(
    private readonly _model: Model,
    private readonly _now: () => number = () => Date.now() / 1000
  ) {
    _model.changed.connect((_, facet) => {
      if (facet === 'cluster' || facet === 'sessions' || facet === 'link') {
        this._note();
      }
    });
  }

  /** The moments of the last hour, oldest first; the first one may have begun before. */
  get moments(): readonly IMoment[] {
    this._forget();
    return this._moments;
  }

  /** Whether a slice, or its holder, has changed in the last hour: otherwise there is nothing to replay. */
  get hasChanged(): boolean {
    const [first, ...later] = this.moments;
    return later.some(each => !sameSlices(first.slices, each.slices));
  }

  /** Return what was known at a time; null if that is before everything that is remembered. */
  at(time: number): IMoment | null {
    return this.moments.filter(moment => moment.at <= time).at(-1) ?? null;
  }

  private _note(): void {
    const { cluster, sessions } = this._model;
    const identity = cluster?.identity ?? '';
    if (identity !== this._identity) {
      this._identity = identity;
      this._moments = [];
    }
    const last = this._moments.at(-1);
    if (!cluster || !this._model.live) {
      if (last?.seen) {
        // Not from now on: the server was silent for a while before it was noticed.
        const since = Math.min(this._model.staleSince ?? Infinity, this._now());
        this._add({ ...last, at: Math.max(since, last.at), seen: false });
      }
      return;
    }
    const slices = cluster.rows('slices');
    const proxies = cluster.rows('proxies');
    if (!last?.seen || last.slices !== slices || last.proxies !== proxies || last.sessions !== sessions) {
      this._add({ at: this._now(), slices, proxies, sessions, seen: true });
    }
  }

  /** Add a moment. If there are too many, keep every second one of the older half; a gap may grow, but none gets lost. */
  private _add(moment: IMoment): void {
    this._moments.push(moment);
    this._forget();
    if (this._moments.length > MOMENTS_KEPT) {
      const half = this._moments.length / 2;
      let watched = 0;
      this._moments = this._moments
        .filter(({ seen }, index) => index >= half || !seen || watched++ % 2 === 0)
        .filter(({ seen }, index, all) => seen || index === 0 || all[index - 1].seen);
    }
  }

  /** Drop what ended more than an hour ago. */
  private _forget(): void {
    const oldest = this._now() - KEPT_SECONDS;
    const first = this._moments.filter(moment => moment.at <= oldest).length - 1;
    if (first > 0) {
      this._moments.splice(0, first);
    }
  }

  private _identity = '';
  private _moments: IMoment[] = [];
}

function sameSlices(some: readonly ISlice[], others: readonly ISlice[]): boolean {
  const same = (one: ISlice, other: ISlice) =>
    one === other || (looksLike(one, other) && one.holder?.session === other.holder?.session);
  return some === others || (some.length === others.length && some.every((each, index) => same(each, others[index])));
}
