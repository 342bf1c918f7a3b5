/** The timeline of the session in front, or of the one that the notebook had last. */
import * as React from 'react';

import { Model } from '../models/model';
import { ITrans } from '../models/trans';
import { useModel } from './hooks';
import { Notice } from './Notice';
import { Timeline } from './Timeline';

export function EventsSection({ model, trans }: { model: Model; trans: ITrans }): JSX.Element {
  useModel(model, 'events', 'sessions', 'front');
  const ended = model.endedSession;
  const session = model.session ?? ended;
  const events = session ? model.events(session.id) : [];
  if (!session || !events.length) {
    return (
      <Notice
        title={trans.__('No events.')}
        hint={trans.__('While a notebook is connected, this shows when its slices go down and come back.')}
      />
    );
  }
  return (
    <>
      {ended && <p className="pw-muted">{trans.__('Session %1 has ended. This is what happened in it:', ended.id)}</p>}
      <Timeline events={events} trans={trans} />
    </>
  );
}
