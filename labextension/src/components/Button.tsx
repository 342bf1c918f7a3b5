/** A button with JupyterLab's look. At most one in a view is primary. */
import * as React from 'react';

export interface IButtonProps {
  readonly label: string;
  readonly kind?: 'primary' | 'danger';
  readonly disabled?: boolean;
  readonly run: () => void;
}

const CLASSES = { primary: ' jp-mod-accept', danger: ' pw-danger' };

export function Button({ label, kind, disabled, run }: IButtonProps): React.JSX.Element {
  return (
    <button
      type="button"
      className={`jp-mod-styled pw-button${kind ? CLASSES[kind] : ''}`}
      disabled={disabled}
      onClick={run}
    >
      {label}
    </button>
  );
}
