/** The status bar's word about a session. */
import * as React from 'react';

import { Model } from '../models/model';
import { ITrans } from '../models/trans';
import { instancesWord, stateWord, TONES } from '../models/words';
import { useModel } from './hooks';

export function StatusItem(props: { model: Model; trans: ITrans; open(): void }): JSX.Element | null {
  const { model, trans, open } = props;
  useModel(model, 'sessions', 'front');
  const session = model.session;
  if (!session) {
    return null;
  }
  const word = stateWord(trans, session);
  return (
    <button
      type="button"
      className={`pw-status pw-tone-${session.alive ? TONES[session.state] : 'fail'}`}
      title={trans.__('Pathways: %1, %2', word, instancesWord(session.instances))}
      onClick={open}
    >
      {trans.__('TPU: %1', word)}
    </button>
  );
}
