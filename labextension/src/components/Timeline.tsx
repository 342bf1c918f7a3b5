/** The events of a session, newest first. */
import * as React from 'react';

import { sentenceOf } from '../models/sentences';
import { entries, eventTone, IEntry } from '../models/timeline';
import { ITrans } from '../models/trans';
import { clock } from '../models/words';
import { IEvent } from '../models/sessionrows';

export interface ITimelineProps {
  readonly events: readonly IEvent[];
  readonly trans: ITrans;
  /** Maximum number of entries to render. */
  readonly limit?: number;
}

export function Timeline({ events, trans, limit = 100 }: ITimelineProps): React.JSX.Element {
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
              <li key={index} className={`pw-tone-${eventTone(step)}`}>
                {sentenceOf(trans, step)}
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
