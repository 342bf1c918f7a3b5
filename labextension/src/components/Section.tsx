/** One section of the panel, which the user can fold. */
import * as React from 'react';

export interface ISectionProps {
  readonly id: string;
  readonly title: string;
  /** A word beside the title, e.g. a count. */
  readonly note?: string;
  readonly folded: boolean;
  readonly onFold: (folded: boolean) => void;
  readonly children: React.ReactNode;
}

export function Section({ id, title, note, folded, onFold, children }: ISectionProps): React.JSX.Element {
  const body = `pathways-jupyter-${id}`;
  return (
    <section className="pw-section" aria-label={title} data-section={id}>
      <h2>
        <button type="button" aria-expanded={!folded} aria-controls={body} onClick={() => onFold(!folded)}>
          <span className="pw-arrow" aria-hidden="true">
            {folded ? '▸' : '▾'}
          </span>
          {title}
          {note && <span className="pw-note">{note}</span>}
        </button>
      </h2>
      <div id={body} className="pw-body" hidden={folded}>
        {!folded && children}
      </div>
    </section>
  );
}
