/** Labelled inputs with the browser's own validation. */
import { HTMLSelect } from '@jupyterlab/ui-components';
import * as React from 'react';

export interface IFieldProps {
  readonly label: string;
  readonly value: string;
  readonly type?: 'text' | 'number';
  readonly placeholder?: string;
  readonly required?: boolean;
  readonly disabled?: boolean;
  /** Why the value is invalid; shown below the input. */
  readonly problem?: string;
  readonly onChange: (value: string) => void;
}

export function Field(props: IFieldProps): React.JSX.Element {
  const { label, value, type = 'text', placeholder, required, disabled, problem, onChange } = props;
  const id = React.useId();
  return (
    <div className="pw-field">
      <label htmlFor={id}>{label}</label>
      <input
        id={id}
        className="jp-mod-styled"
        type={type}
        {...(type === 'number' ? { min: 1, step: 1 } : {})}
        required={required}
        disabled={disabled}
        value={value}
        placeholder={placeholder}
        spellCheck={false}
        aria-describedby={problem ? `${id}-problem` : undefined}
        onChange={event => onChange(event.target.value)}
      />
      {problem && (
        <p id={`${id}-problem`} className="pw-problem">
          {problem}
        </p>
      )}
    </div>
  );
}

export interface ISelectProps {
  readonly label: string;
  readonly value: string;
  readonly disabled?: boolean;
  readonly options: readonly { readonly value: string; readonly label: string }[];
  readonly onChange: (value: string) => void;
}

export function Select({ label, value, disabled, options, onChange }: ISelectProps): React.JSX.Element {
  const id = React.useId();
  return (
    <div className="pw-field">
      <label htmlFor={id}>{label}</label>
      <HTMLSelect
        id={id}
        title={options.find(option => option.value === value)?.label}
        value={value}
        disabled={disabled}
        onChange={event => onChange(event.target.value)}
      >
        {options.map(option => (
          <option key={option.value} value={option.value}>
            {option.label}
          </option>
        ))}
      </HTMLSelect>
    </div>
  );
}
