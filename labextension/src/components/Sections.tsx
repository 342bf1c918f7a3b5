/** The sections of the panel: each has a title that folds it, and takes the height that its content needs. */
import { caretDownIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import { PanelView } from '../models/remembered';
import { Model } from '../models/model';
import { useModelValue } from './hooks';

export interface ISection {
  readonly name: string;
  readonly label: string;
  /** Whether there is something in it; a section without it is always shown. */
  readonly isFilled?: (model: Model) => boolean;
  readonly body: () => React.JSX.Element;
}

export interface ISectionsProps {
  readonly model: Model;
  readonly sections: readonly ISection[];
  readonly view: PanelView;
}

export function Sections({ model, sections, view }: ISectionsProps): React.JSX.Element {
  const folded = React.useSyncExternalStore(view.subscribe, () => view.value().folded);
  const shown = useModelValue(model, each =>
    each.usable ? sections.map(({ name, isFilled }) => (isFilled?.(each) === false ? '' : name)).join() : ''
  ).split(',');
  return (
    <>
      {sections
        .filter(({ name }) => shown.includes(name))
        .map(section => (
          <Section key={section.name} section={section} isOpen={!folded.includes(section.name)} toggle={view.toggle} />
        ))}
    </>
  );
}

interface ISectionProps {
  readonly section: ISection;
  readonly isOpen: boolean;
  readonly toggle: (name: string) => void;
}

/** A folded section has no content: it costs nothing when the cluster changes. */
function Section({ section: { name, label, body }, isOpen, toggle }: ISectionProps): React.JSX.Element {
  const id = React.useId();
  return (
    <div className={`pw-section pw-section-${name}`}>
      <h3>
        <button
          type="button"
          className="pw-title"
          aria-expanded={isOpen}
          aria-controls={id}
          onClick={() => toggle(name)}
        >
          <caretDownIcon.react tag="span" />
          {label}
        </button>
      </h3>
      {isOpen && (
        // It may be longer than its place, and contain nothing that takes the focus.
        <div id={id} className="pw-body" data-section={name} tabIndex={0}>
          {React.createElement(body)}
        </div>
      )}
    </div>
  );
}
