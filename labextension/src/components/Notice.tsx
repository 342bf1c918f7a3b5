/** A message for an empty or failed state: what is wrong, and what to do next. */
import * as React from 'react';

import { Tone } from '../models/sessionrows';
import { Button } from './Button';

export interface INoticeProps {
  readonly tone?: Tone;
  readonly title: string;
  readonly hint?: string;
  readonly actions?: readonly { readonly label: string; readonly primary?: boolean; readonly run: () => void }[];
}

export function Notice({ tone = 'none', title, hint, actions = [] }: INoticeProps): React.JSX.Element {
  return (
    <div className={`pw-notice pw-tone-${tone}`} role={tone === 'fail' ? 'alert' : 'status'}>
      <p>{title}</p>
      {hint && <p className="pw-muted">{hint}</p>}
      {actions.length > 0 && (
        <div className="pw-buttons">
          {actions.map(({ label, primary, run }) => (
            <Button key={label} label={label} kind={primary ? 'primary' : undefined} run={run} />
          ))}
        </div>
      )}
    </div>
  );
}
