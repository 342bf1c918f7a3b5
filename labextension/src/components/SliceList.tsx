/** The slice map as a list with two lines for each slice. */
import * as React from 'react';

import { Holdings, IHolding, sameHolding, sliceName } from '../models/holdings';
import { ITrans } from '../models/trans';
import { age, HEALTH_TONES, holderWord, sentence, silenceSentence, sliceWord } from '../models/words';
import { ISlice } from '../models/wire';
import { LinkButton } from './Button';
import { Toned } from './Toned';

export interface ISliceListProps {
  readonly slices: readonly ISlice[];
  readonly holdings: Holdings;
  readonly trans: ITrans;
  readonly now: number;
  /** Open the log of a worker; if missing, there are no log buttons. */
  readonly openLog?: (pod: string, title: string) => void;
}

export function SliceList({ slices, holdings, trans, now, openLog }: ISliceListProps): React.JSX.Element {
  return (
    <ul className="pw-list" aria-label={trans.__('Slices')}>
      {slices.map(slice => {
        const holding = holdings.of(slice);
        // Pass the age as text: a row then renders only when the text changes, not on each tick of the clock.
        const since = holding.since ? age(trans, holding.since, now) : '';
        const silence = holding.reclaimable ? silenceSentence(trans, holding.reclaimable, now) : '';
        return <Row key={slice.id} {...{ slice, holding, since, silence, trans, openLog }} />;
      })}
    </ul>
  );
}

interface IRowProps extends Pick<ISliceListProps, 'trans' | 'openLog'> {
  readonly slice: ISlice;
  readonly holding: IHolding;
  readonly since: string;
  readonly silence: string;
}

const Row = React.memo(
  function Row({ slice, holding, since, silence, trans, openLog }: IRowProps): React.JSX.Element {
    const ready = slice.hosts.filter(host => host.health === 'ready').length;
    const details = [
      holderWord(trans, slice, holding),
      since && trans.__('for %1', since),
      silence,
      (slice.hosts.length > 1 || ready < slice.hosts.length) &&
        trans._n('%2 of %1 host ready', '%2 of %1 hosts ready', slice.hosts.length, ready),
      ...slice.remarks
    ];
    return (
      <li className={`pw-is-${holding.owner}`} data-slice={slice.id} data-owner={holding.owner}>
        <div className="pw-head">
          <b>{sentence(sliceName(trans, slice.number, holding.index))}</b>
          <Toned tone={HEALTH_TONES[slice.health]}>{sliceWord(trans, slice, holding)}</Toned>
        </div>
        <div className="pw-details">
          <span className="pw-muted">{details.filter(Boolean).join(' · ')}</span>
          {openLog && <Logs slice={slice} trans={trans} openLog={openLog} />}
        </div>
      </li>
    );
  },
  (one, other) =>
    one.slice === other.slice &&
    one.since === other.since &&
    one.silence === other.silence &&
    one.trans === other.trans &&
    one.openLog === other.openLog &&
    sameHolding(one.holding, other.holding)
);

/** One link, or a fold of links for a slice with several hosts. */
function Logs({
  slice,
  trans,
  openLog
}: { slice: ISlice; trans: ITrans } & Required<Pick<ISliceListProps, 'openLog'>>): React.JSX.Element | null {
  const hosts = slice.hosts.map((host, index) => ({ pod: host.pod, index })).filter(host => host.pod);
  const link = ({ pod, index }: { pod: string; index: number }, text: string) => (
    <LinkButton
      key={index}
      label={text}
      name={trans.__('Log of slice %1, host %2', slice.number, index)}
      run={() => openLog(pod, `${slice.number}-${index}`)}
    />
  );
  if (hosts.length <= 1) {
    return hosts.length ? link(hosts[0], trans.__('Log')) : null;
  }
  return (
    <details className="pw-fold">
      <summary aria-label={trans.__('Logs of the hosts of slice %1', slice.number)}>
        {trans.__('Logs of %1 hosts', hosts.length)}
      </summary>
      {hosts.map(host => link(host, trans.__('Host %1', host.index)))}
    </details>
  );
}
