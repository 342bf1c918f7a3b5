/** The timeline of the session in front. */
import * as React from 'react';

import { Model } from '../models/model';
import { ITrans } from '../models/trans';
import { useModel } from './hooks';
import { Notice } from './Notice';
import { Timeline } from './Timeline';

export function EventsSection({ model, trans }: { model: Model; trans: ITrans }): JSX.Element {
  useModel(model, 'events', 'sessions', 'front');
  const session = model.session;
  const events = session ? model.events(session.id) : [];
  if (!events.length) {
    return (
      <Notice
        title={trans.__('Nothing happened yet.')}
        hint={trans.__('Once this notebook is connected, slices that go down and heal are told here.')}
      />
    );
  }
  return <Timeline events={events} trans={trans} />;
}
