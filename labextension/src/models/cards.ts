/**
 * The look of sessions' cards and maps of slices in notebooks. They are saved as what stays true, "was connected at
 * 22:47", without colour: a kernel that is killed cannot correct it. While its session lives, this page shows it as live.
 *
 * The classes are those of pathways_jupyter/render/parts.py: change both.
 */
import { ISession } from './sessionrows';
import { mayHaveArrays } from './sessions';

/** The colours of a card's tones. */
const TONES = { ok: 'ok', wait: 'wait', warn: 'wait', fail: 'fail' } as const;

/** Return the style sheet for the cards of these sessions: of those that live and answer. */
export function liveCards(sessions: readonly Pick<ISession, 'id' | 'alive' | 'silent' | 'state'>[]): string {
  const live = sessions.filter(each => each.alive && !each.silent && mayHaveArrays(each) && /^[\w-]+$/.test(each.id));
  return live.map(({ id }) => styleOf(`.pathways-jupyter .pw-card.pw-none.pw-live-${id}`)).join('\n');
}

function styleOf(card: string): string {
  const tones = Object.entries(TONES).map(
    ([tone, colour]) => `${card}.pw-once-${tone}, ${card} .pw-once-${tone} { --pw-tone: var(--pw-${colour}); }`
  );
  // The title has the state in words, without its time.
  const words = `${card} .pw-once { font-size: 0; } ${card} .pw-once::after { content: attr(title); font-size: 13px; }`;
  return [...tones, words, `${card} .pw-map { filter: none; }`].join('\n');
}
