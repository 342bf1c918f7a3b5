/** What happened to a session, newest first. */
import * as React from 'react';

import { ITrans } from '../models/trans';
import { clock, Tone } from '../models/words';
import { IEvent } from '../models/wire';

const TONES: { readonly [kind: string]: Tone } = {
  'slice-placed': 'ok',
  'slice-down': 'fail',
  'slice-healed': 'ok',
  'proxy-lost': 'fail',
  warning: 'wait'
};

export interface ITimelineProps {
  readonly events: readonly IEvent[];
  readonly trans: ITrans;
  /** Newest events that are drawn. */
  readonly limit?: number;
}

export function Timeline({ events, trans, limit = 100 }: ITimelineProps): JSX.Element {
  const shown = events.slice(-limit).reverse();
  return (
    <>
      <ol className="pw-timeline" reversed aria-label={trans.__('Events, newest first')}>
        {shown.map((event, index) => (
          <Entry key={events.length - index} event={event} />
        ))}
      </ol>
      {events.length > limit && <p className="pw-muted">{trans.__('%1 older events are not shown.', events.length - limit)}</p>}
    </>
  );
}

const Entry = React.memo(function Entry({ event }: { event: IEvent }): JSX.Element {
  return (
    <li className={`pw-event pw-tone-${tone(event)}`} data-kind={event.kind}>
      <time dateTime={new Date(event.at * 1000).toISOString()}>{clock(event.at)}</time>
      <span>{event.message}</span>
    </li>
  );
});

function tone(event: IEvent): Tone {
  if (event.kind === 'state') {
    const state = event.data.state;
    return state === 'connected' ? 'ok' : state === 'lost' || state === 'failed' ? 'fail' : 'none';
  }
  return TONES[event.kind] ?? 'none';
}
