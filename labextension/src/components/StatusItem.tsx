/** The status bar's item: the state of the session in front. */
import * as React from 'react';

import { chipHours } from '../models/chiphours';
import { Model } from '../models/model';
import { ITrans } from '../models/trans';
import { clock, instancesWord } from '../models/words';
import { useModel, useNow } from './hooks';
import { Toned } from './Toned';

export function StatusItem(props: { model: Model; trans: ITrans; open: () => void }): React.JSX.Element | null {
  const { model, trans, open } = props;
  useModel(model, 'sessions', 'events', 'front', 'link');
  const now = useNow();
  const session = model.session;
  if (!session) {
    return null;
  }
  const { word } = session;
  const since = model.linked ? null : model.staleSince;
  const hours = chipHours(session, model.events(session.id), since ?? now);
  const title = [
    trans.__('Pathways: %1, %2', word, instancesWord(session.instances)),
    hours !== null && trans.__('held so far: %1 chip-hours', hours.toFixed(hours < 10 ? 2 : 0))
  ];
  return (
    <button type="button" className="pw-status" title={title.filter(Boolean).join('\n')} onClick={open}>
      <Toned tone={model.linked ? session.tone : 'none'}>
        {since === null ? trans.__('TPU: %1', word) : trans.__('TPU: %1 at %2', word, clock(since))}
      </Toned>
    </button>
  );
}
