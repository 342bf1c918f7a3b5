/** Texts for states, ages and counts. */
import { TICK_SECONDS } from './clock';
import { Holdings, IHolding, ownerWord, sliceName } from './holdings';
import { ITrans } from './trans';
import { IArrays, ISession } from './sessionrows';
import { IHost, IReclaimable, ISlice } from './wire';

/** Return why the notebook in front cannot be connected now, and what to do; null if it can. */
export function refusal(
  trans: ITrans,
  front: object | null,
  session: Pick<ISession, 'verdicts'> | null
): { readonly message: string; readonly hint: string } | null {
  if (!front) {
    return {
      message: trans.__('No notebook is in front.'),
      hint: trans.__('Open a notebook to connect it to TPUs.')
    };
  }
  const { sentence: message = '', hint = '' } = session?.verdicts['connect-otherwise'] ?? {};
  return message ? { message, hint } : null;
}

/** "reason · pod · node"; that there is no pod may be the reason, and is said once. */
export function hostWords(trans: ITrans, host: IHost): string {
  const words = new Set([host.reason, host.pod || trans.__('no pod'), host.node]);
  return [...words].filter(Boolean).join(' · ');
}

/** Say what happens to the cell that runs in a session's notebook when its proxy goes. */
export function busySentence(trans: ITrans, session: Pick<ISession, 'state'>): string {
  return session.state === 'starting' || session.state === 'waiting'
    ? trans.__('The cell that connects it ends with an error.')
    : trans.__('A cell is running: if it uses the TPUs, it fails.');
}

/**
 * Say what is lost with a session's proxy; empty if nothing.
 *
 * @param arrays What the session's kernel has on the TPUs; null if that is not known.
 */
export function lossSentence(trans: ITrans, arrays: IArrays | null): string {
  if (!arrays) {
    return trans.__('Its arrays on TPUs would be lost. How many it has is not known: its kernel does not answer.');
  }
  return arrays.count
    ? trans._n(
        '%1 array (%2) on its TPUs would be lost.',
        '%1 arrays (%2) on its TPUs would be lost.',
        arrays.count,
        size(arrays.bytes)
      )
    : '';
}

/** Return a number of bytes in the unit that suits it: "32 B", "1.2 GB". */
export function size(bytes: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  const power = Math.min(units.length - 1, Math.floor(Math.log10(Math.max(1, bytes)) / 3));
  return `${(bytes / 1000 ** power).toFixed(power ? 1 : 0)}\u00a0${units[power]}`;
}

/** What one can do with a slice, in the word that the notebook has for it too. */
export function sliceWord(trans: ITrans, slice: ISlice, holding: IHolding): string {
  if (slice.availability === 'in use') {
    return holding.owner === 'this' ? ownerWord(trans, holding) : trans.__('in use by %1', ownerWord(trans, holding));
  }
  return slice.availability;
}

/** What the word does not say: who holds a slice that cannot be used, or is kept; empty if there is no more to say. */
export function holderWord(trans: ITrans, slice: ISlice, holding: IHolding): string {
  if (slice.availability === 'in use' || holding.owner === 'free' || holding.owner === 'unknown') {
    return '';
  }
  return slice.availability === 'reclaimable' ? ownerWord(trans, holding) : holdingWord(trans, holding);
}

/** Describe a slice in one line: name, type, what one can do with it, and its holder. */
export function sliceSentence(trans: ITrans, slice: ISlice, holding: IHolding): string {
  return trans.__(
    '%1 (%2): %3',
    sentence(sliceName(trans, slice.number, holding.index)),
    slice.instance_type,
    [sliceWord(trans, slice, holding), holderWord(trans, slice, holding)].filter(Boolean).join(', ')
  );
}

/** The holder of a slice; a dash if no one holds it. */
export function holdingWord(trans: ITrans, holding: IHolding): string {
  const owner = ownerWord(trans, holding) || '–';
  if (holding.reclaimable) {
    return trans.__('%1 (%2)', owner, reclaimableWord(trans));
  }
  return holding.lost ? trans.__('%1 (lost, waiting for it)', owner) : owner;
}

/** The state of a proxy, and of its slices, while its session is silent. */
export function reclaimableWord(trans: ITrans): string {
  return trans.__('reclaimable');
}

/** Say for how long the session of a reclaimable proxy has been silent, and for how long the proxy is kept. */
export function silenceSentence(trans: ITrans, reclaimable: IReclaimable, now: number): string {
  const silent = age(trans, reclaimable.silent_since, now);
  return reclaimable.kept_until > now
    ? trans.__(
        'silent for %1, kept for %2 unless its slices are needed',
        silent,
        age(trans, now, reclaimable.kept_until)
      )
    : trans.__('silent for %1', silent);
}

/** Return `text` with its first letter capitalized. */
export function sentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Return the time since `then` in its two largest units, joined by non-breaking spaces. */
export function age(trans: ITrans, then: number, now: number): string {
  return ageWords(trans, then, now).replace(/ /g, '\u00a0');
}

function ageWords(trans: ITrans, then: number, now: number): string {
  const seconds = Math.max(0, Math.floor(now - then));
  const minutes = Math.floor(seconds / 60);
  const hours = Math.floor(minutes / 60);
  const days = Math.floor(hours / 24);
  if (seconds < TICK_SECONDS) {
    // The page's clock is up to one tick behind.
    return trans.__('< %1 s', TICK_SECONDS);
  }
  if (!minutes) {
    return trans.__('%1 s', seconds);
  }
  if (!hours) {
    return minutes < 10 ? trans.__('%1 min %2 s', minutes, seconds % 60) : trans.__('%1 min', minutes);
  }
  return days ? trans.__('%1 d %2 h', days, hours % 24) : trans.__('%1 h %2 min', hours, minutes % 60);
}

/** Return the local time of day. */
export function clock(at: number): string {
  return new Date(at * 1000).toLocaleTimeString([], { hour12: false });
}

export function instancesWord(instances: { readonly [type: string]: number }): string {
  return Object.entries(instances)
    .map(([type, count]) => `${count} × ${type}`)
    .join(', ');
}

/** Summarize all slices in one sentence, also for screen readers. */
export function slicesSentence(trans: ITrans, slices: readonly ISlice[], holdings: Holdings): string {
  const held = { this: 0, mine: 0, other: 0, unknown: 0, free: 0 };
  let free = 0;
  let silent = 0;
  for (const slice of slices) {
    const { owner, reclaimable } = holdings.of(slice);
    held[owner]++;
    silent += reclaimable ? 1 : 0;
    free += owner === 'free' && slice.availability === 'free' ? 1 : 0;
  }
  const count = (fits: (slice: ISlice) => boolean) => slices.filter(fits).length;
  const starting = count(slice => slice.health === 'starting');
  const down = count(slice => slice.health === 'down');
  const parts = [
    trans._n('%1 slice', '%1 slices', slices.length),
    trans.__(
      '%1 ready',
      count(slice => slice.health === 'ready')
    ),
    starting && trans.__('%1 starting', starting),
    down && trans.__('%1 down', down),
    held.this && trans.__('%1 in this notebook', held.this),
    held.mine &&
      (holdings.hasFront ? trans.__('%1 in my other notebooks', held.mine) : trans.__('%1 in my notebooks', held.mine)),
    held.other && trans.__('%1 held by others', held.other),
    silent && trans.__('%1 %2', silent, reclaimableWord(trans)),
    // A slice whose holder is not known is not free, and how many are is not known either.
    held.unknown
      ? trans._n('holder of %1 not known', 'holders of %1 not known', held.unknown)
      : trans.__('%1 free', free)
  ];
  return parts.filter(Boolean).join(', ');
}
