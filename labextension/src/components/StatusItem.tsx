/** The status bar's item: the state of the session in front. */
import * as React from 'react';

import { Model } from '../models/model';
import { ITrans } from '../models/trans';
import { clock, instancesWord } from '../models/words';
import { useModel } from './hooks';
import { Toned } from './Toned';

export function StatusItem(props: { model: Model; trans: ITrans; open: () => void }): React.JSX.Element | null {
  const { model, trans, open } = props;
  useModel(model, 'sessions', 'front', 'link');
  const session = model.session;
  if (!session) {
    return null;
  }
  const { word } = session;
  const since = model.linked ? null : model.staleSince;
  const title = trans.__('Pathways: %1, %2', word, instancesWord(session.instances));
  return (
    <button type="button" className="pw-status" title={title} onClick={open}>
      <Toned tone={model.linked ? session.tone : 'none'}>
        {since === null ? trans.__('TPU: %1', word) : trans.__('TPU: %1 at %2', word, clock(since))}
      </Toned>
    </button>
  );
}
