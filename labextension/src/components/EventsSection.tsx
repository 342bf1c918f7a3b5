/** The timeline of the session in front, or of the notebook's last session. */
import * as React from 'react';

import { Model } from '../models/model';
import { IEvent } from '../models/sessionrows';
import { entries, IEntry } from '../models/timeline';
import { ITrans } from '../models/trans';
import { clock } from '../models/words';
import { useModel } from './hooks';
import { Notice } from './Notice';
import { Training } from './Training';

export function EventsSection({ model, trans }: { model: Model; trans: ITrans }): React.JSX.Element {
  useModel(model, 'events', 'sessions', 'front', 'training');
  const ended = model.endedSession;
  const session = model.session ?? ended;
  const run = session && model.training(session.id);
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

interface ITimelineProps {
  readonly events: readonly IEvent[];
  readonly trans: ITrans;
  /** Maximum number of entries to render. */
  readonly limit?: number;
}

function Timeline({ events, trans, limit = 100 }: ITimelineProps): React.JSX.Element {
  const all = React.useMemo(() => entries(trans, events), [trans, events]);
  const shown = all.slice(-limit).reverse();
  return (
    <>
      <ol className="pw-timeline" reversed aria-label={trans.__('Events, newest first')}>
        {shown.map((entry, index) => (
          <Entry key={all.length - index} entry={entry} trans={trans} />
        ))}
      </ol>
      {all.length > limit && (
        <p className="pw-muted">{trans.__('%1 older events are not shown.', all.length - limit)}</p>
      )}
    </>
  );
}

function Entry({ entry, trans }: { entry: IEntry; trans: ITrans }): React.JSX.Element {
  const { event, text, tone, from, steps } = entry;
  return (
    <li className={`pw-event pw-tone-${tone}`} data-kind={event.kind}>
      <time dateTime={new Date(from * 1000).toISOString()}>{clock(from)}</time>
      {steps.length ? (
        <details className="pw-fold">
          <summary>{text}</summary>
          <ol aria-label={trans.__('Steps')}>
            {steps.map((step, index) => (
              <li key={index} className={`pw-tone-${step.tone}`}>
                {step.message}
              </li>
            ))}
          </ol>
        </details>
      ) : (
        <span>{text}</span>
      )}
    </li>
  );
}
