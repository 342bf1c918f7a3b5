/** A button with JupyterLab's look. At most one in a view is primary. */
import * as React from 'react';

export interface IButtonProps {
  readonly label: string;
  readonly kind?: 'primary' | 'danger';
  readonly disabled?: boolean;
  /** Shown while the mouse is over it. */
  readonly title?: string;
  readonly run: () => void;
}

const CLASSES = { primary: ' jp-mod-accept', danger: ' pw-danger' };

export function Button({ label, kind, disabled, title, run }: IButtonProps): React.JSX.Element {
  return (
    <button
      type="button"
      className={`jp-mod-styled pw-button${kind ? CLASSES[kind] : ''}`}
      disabled={disabled}
      title={title}
      onClick={run}
    >
      {label}
    </button>
  );
}

export interface ILinkButtonProps {
  readonly label: string;
  /** Its name for screen readers, where the label alone does not say what it is about. */
  readonly name?: string;
  readonly run: () => void;
}

/** A small action that looks like a link; often one in each row of a list. */
export function LinkButton({ label, name, run }: ILinkButtonProps): React.JSX.Element {
  return (
    <button type="button" className="pw-link" aria-label={name} onClick={run}>
      {label}
    </button>
  );
}
