/** The filter of the slice map: words for numbers, states and owners. */
import { Holdings, IHolding } from './holdings';
import { ITrans } from './trans';
import { reclaimableWord } from './words';
import { ISlice } from './wire';

type Fits = (slice: ISlice, holding: IHolding) => boolean;

/** Words of the same kind are alternatives ("3 7"); of each kind, one must fit ("mine down"). */
type Kind = 'number' | 'state' | 'owner';

/** One number, or the first and the last of a range. */
const NUMBERS = /^(\d+)(?:-(\d+))?$/;

/** Return the slices that fit `text`; all of them if it is empty. A beginning of a word is enough: "do" for "down". */
export function filtered(
  text: string,
  slices: readonly ISlice[],
  holdings: Holdings,
  trans: ITrans
): readonly ISlice[] {
  const words = text.toLowerCase().split(/[\s,]+/);
  const wanted = new Map<Kind, Fits[]>();
  for (const word of words.filter(Boolean)) {
    const [kind, fits] = understood(word, trans);
    wanted.set(kind, [...(wanted.get(kind) ?? []), fits]);
  }
  if (!wanted.size) {
    return slices;
  }
  const kinds = [...wanted.values()];
  return slices.filter(slice => {
    const holding = holdings.of(slice);
    return kinds.every(alternatives => alternatives.some(fits => fits(slice, holding)));
  });
}

function understood(word: string, trans: ITrans): readonly [Kind, Fits] {
  const numbers = NUMBERS.exec(word);
  if (numbers) {
    const first = Number(numbers[1]);
    const last = numbers[2] ? Number(numbers[2]) : first;
    return ['number', slice => slice.number >= first && slice.number <= last];
  }
  const begun = (all: readonly (readonly [string, Fits])[]) =>
    all.filter(([each]) => each.toLowerCase().startsWith(word)).map(([, fits]) => fits);
  const states = begun([
    [trans.__('ready'), slice => slice.health === 'ready'],
    [trans.__('starting'), slice => slice.health === 'starting'],
    [trans.__('down'), slice => slice.health === 'down'],
    [trans.__('lost'), (_, holding) => holding.lost],
    [reclaimableWord(trans), (_, holding) => !!holding.reclaimable]
  ]);
  if (states.length) {
    return ['state', (slice, holding) => states.some(fits => fits(slice, holding))];
  }
  const owners = begun([
    [trans.__('mine'), (_, { owner }) => owner === 'this' || owner === 'mine'],
    [trans.__('this'), (_, { owner }) => owner === 'this'],
    [trans.__('others'), (_, { owner }) => owner === 'other'],
    [trans.__('free'), (slice, { owner }) => owner === 'free' && slice.availability === 'free']
  ]);
  // A user's name or a notebook's path.
  owners.push((_, { holder }) => holder.toLowerCase().includes(word));
  return ['owner', (slice, holding) => owners.some(fits => fits(slice, holding))];
}
