/** A message for an empty or failed state: what is wrong, and what to do next. */
import * as React from 'react';

import { Tone } from '../models/words';
import { Button } from './Button';

export interface INoticeProps {
  readonly tone?: Tone;
  readonly title: string;
  readonly hint?: string;
  readonly action?: { readonly label: string; readonly primary?: boolean; run(): void };
}

export function Notice({ tone = 'none', title, hint, action }: INoticeProps): React.JSX.Element {
  return (
    <div className={`pw-notice pw-tone-${tone}`} role={tone === 'fail' ? 'alert' : 'status'}>
      <p>{title}</p>
      {hint && <p className="pw-muted">{hint}</p>}
      {action && <Button label={action.label} kind={action.primary ? 'primary' : undefined} run={() => action.run()} />}
    </div>
  );
}
