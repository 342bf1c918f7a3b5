/** Which sections of the panel the user has folded. Remembered with the page's layout. */
import { IStore, Remembered } from './remembered';

export type IFolding = {
  /** Names of the folded sections. */
  readonly folded: readonly string[];
};

/** What a researcher reads most is open. */
const FIRST: IFolding = { folded: ['services'] };

export class Folding extends Remembered<IFolding> {
  constructor(store: IStore | null) {
    super(store, 'pathways-jupyter:sections', FIRST, restored);
  }

  readonly toggle = (name: string): void => {
    const { folded } = this.value();
    this.set({ folded: folded.includes(name) ? folded.filter(each => each !== name) : [...folded, name] });
  };
}

function restored(saved: unknown): IFolding {
  const { folded } = (saved ?? {}) as Partial<Record<keyof IFolding, unknown>>;
  return Array.isArray(folded) ? { folded: folded.map(String) } : FIRST;
}
