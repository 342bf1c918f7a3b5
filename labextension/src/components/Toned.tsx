/** Words in the color of what they mean. */
import * as React from 'react';

import { Tone } from '../models/words';

export function Toned({ tone, children }: { tone: Tone; children: React.ReactNode }): JSX.Element {
  return <span className={`pw-tone pw-tone-${tone}`}>{children}</span>;
}
