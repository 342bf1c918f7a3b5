/** Text with the color and mark of a tone. */
import * as React from 'react';

import { Tone } from '../models/sessionrows';

export function Toned({ tone, children }: { tone: Tone; children: React.ReactNode }): React.JSX.Element {
  return <span className={`pw-tone pw-tone-${tone}`}>{children}</span>;
}
