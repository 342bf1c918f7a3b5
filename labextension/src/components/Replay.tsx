/** The scrubber under the slices: shows them as they were at a time in the last hour. */
import * as React from 'react';

import { IMoment, KEPT_SECONDS } from '../models/history';
import { ITrans } from '../models/trans';
import { clock } from '../models/words';
import { LinkButton } from './Button';

export interface IReplayProps {
  /** What is remembered, oldest first. */
  readonly moments: readonly IMoment[];
  /** The time that is shown, in seconds since the epoch; null for the present. */
  readonly at: number | null;
  /** The present. */
  readonly now: number;
  readonly onMove: (at: number | null) => void;
  readonly trans: ITrans;
}

export function Replay({ moments, at, now, onMove, trans }: IReplayProps): React.JSX.Element {
  const first = Math.max(moments[0].at, now - KEPT_SECONDS);
  // The page's clock is up to one tick behind the newest moment.
  const end = Math.ceil(Math.max(now, moments[moments.length - 1].at));
  const before = at === null ? moments.at(-1) : moments.filter(each => each.at < at && each.at >= first).at(-1);
  const after = at === null ? undefined : moments.find(moment => moment.at > at);
  return (
    <div className="pw-replay" role="group" aria-label={trans.__('Replay of the last hour')} data-at={at}>
      <button
        type="button"
        className="pw-step"
        aria-label={trans.__('To the change before')}
        disabled={!before}
        onClick={() => before && onMove(before.at)}
      >
        ◂
      </button>
      <input
        type="range"
        className="pw-time"
        // Whole seconds, from the last one before the first moment to the next one after now.
        min={Math.floor(first)}
        max={end}
        value={at === null ? end : Math.round(at)}
        aria-label={trans.__('Time of the slices shown')}
        aria-valuetext={at === null ? trans.__('now') : clock(at)}
        onChange={event => {
          const wanted = event.target.valueAsNumber;
          onMove(wanted >= end ? null : Math.max(wanted, first));
        }}
      />
      <span className="pw-muted" aria-hidden="true">
        {at === null ? trans.__('now') : clock(at)}
      </span>
      <button
        type="button"
        className="pw-step"
        aria-label={trans.__('To the change after')}
        disabled={at === null}
        onClick={() => onMove(after?.at ?? null)}
      >
        ▸
      </button>
    </div>
  );
}

export interface IPastProps {
  readonly at: number;
  readonly moment: IMoment;
  readonly onNow: () => void;
  readonly trans: ITrans;
  readonly children: React.ReactNode;
}

/** The slices of the past, under a line that says so and leads back. */
export function Past({ at, moment, onNow, trans, children }: IPastProps): React.JSX.Element {
  return (
    <div className="pw-past" data-seen={moment.seen}>
      <div className="pw-row">
        <b role="status">
          {moment.seen
            ? trans.__('%1, replay', clock(at))
            : trans.__('%1, replay: not watched then; as of %2', clock(at), clock(moment.at))}
        </b>
        <LinkButton label={trans.__('Back to now')} run={onNow} />
      </div>
      <div className={moment.seen ? '' : 'pw-stale'}>{children}</div>
    </div>
  );
}
