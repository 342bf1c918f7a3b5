/** How the user has arranged the sections of the panel. */

export interface IArrangement {
  /** Names of the folded sections. */
  readonly folded: readonly string[];
  /** Share of each section in the panel's height. */
  readonly sizes: readonly number[];
}

/** Parse a saved arrangement; null if it is none, or of another version with more or fewer sections. */
export function arrangement(saved: unknown, sections: number): IArrangement | null {
  const { folded, sizes } = (saved ?? {}) as Partial<Record<keyof IArrangement, unknown>>;
  if (!Array.isArray(folded) || !Array.isArray(sizes) || sizes.length !== sections) {
    return null;
  }
  const valid = sizes.every(size => typeof size === 'number' && Number.isFinite(size) && size >= 0);
  return valid ? { folded: folded.map(String), sizes: sizes as number[] } : null;
}
