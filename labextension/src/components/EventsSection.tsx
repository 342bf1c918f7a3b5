/** The timeline of the session in front, or of the notebook's last session. */
import * as React from 'react';

import { Model } from '../models/model';
import { ITrans } from '../models/trans';
import { useModel } from './hooks';
import { Notice } from './Notice';
import { Timeline } from './Timeline';
import { Training } from './Training';

export function EventsSection({ model, trans }: { model: Model; trans: ITrans }): React.JSX.Element {
  useModel(model, 'events', 'sessions', 'front', 'runs');
  const ended = model.endedSession;
  const session = model.session ?? ended;
  const run = session && model.run(session.id);
  const events = session ? model.events(session.id) : [];
  if (!session || !events.length) {
    return (
      <Notice
        title={trans.__('No events.')}
        hint={trans.__('While a notebook is connected, this shows when its slices go down and recover.')}
      />
    );
  }
  return (
    <>
      {ended && <p className="pw-muted">{trans.__('Session %1 has ended. Its events:', ended.id)}</p>}
      {run && <Training run={run} trans={trans} />}
      <Timeline events={events} trans={trans} />
    </>
  );
}
