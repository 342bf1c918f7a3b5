/** Labelled inputs. */
import * as React from 'react';

export interface IFieldProps {
  readonly label: string;
  readonly value: string;
  readonly type?: 'text' | 'number';
  readonly placeholder?: string;
  onChange(value: string): void;
}

export function Field({ label, value, type = 'text', placeholder, onChange }: IFieldProps): JSX.Element {
  return (
    <label className="pw-field">
      <span>{label}</span>
      <input
        className="jp-mod-styled"
        type={type}
        min={type === 'number' ? 1 : undefined}
        value={value}
        placeholder={placeholder}
        spellCheck={false}
        onChange={event => onChange(event.target.value)}
      />
    </label>
  );
}

export interface ISelectProps {
  readonly label: string;
  readonly value: string;
  readonly options: readonly { readonly value: string; readonly label: string }[];
  onChange(value: string): void;
}

export function Select({ label, value, options, onChange }: ISelectProps): JSX.Element {
  return (
    <label className="pw-field">
      <span>{label}</span>
      <select className="jp-mod-styled" value={value} onChange={event => onChange(event.target.value)}>
        {options.map(option => (
          <option key={option.value} value={option.value}>
            {option.label}
          </option>
        ))}
      </select>
    </label>
  );
}
