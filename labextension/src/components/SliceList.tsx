/** The slice map as a list with two lines for each slice. */
import * as React from 'react';

import { Holdings, IHolding, sameHolding, sliceName } from '../models/holdings';
import { ITrans } from '../models/trans';
import { age, holderWord, sentence, silenceSentence, sliceWord } from '../models/words';
import { ISlice } from '../models/wire';
import { isSame } from './hooks';
import { HostLog } from './SliceDetails';
import { Toned } from './Toned';

export interface ISliceListProps {
  readonly slices: readonly ISlice[];
  readonly holdings: Holdings;
  readonly trans: ITrans;
  readonly now: number;
  /** Open the log of a worker. */
  readonly openLog: (pod: string, title: string) => void;
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
          <Toned tone={slice.tone}>{sliceWord(trans, slice, holding)}</Toned>
        </div>
        <div className="pw-details">
          <span className="pw-muted">{details.filter(Boolean).join(' · ')}</span>
          <Logs slice={slice} trans={trans} openLog={openLog} />
        </div>
      </li>
    );
  },
  (one, other) =>
    isSame(one, other, 'slice', 'since', 'silence', 'trans', 'openLog') && sameHolding(one.holding, other.holding)
);

/** One link, or a fold of links for a slice with several hosts. */
function Logs(props: Pick<IRowProps, 'slice' | 'trans' | 'openLog'>) {
  const { slice, trans } = props;
  const hosts = slice.hosts.map((host, index) => ({ pod: host.pod, index })).filter(host => host.pod);
  if (hosts.length <= 1) {
    return hosts.length ? <HostLog {...props} {...hosts[0]} label={trans.__('Log')} /> : null;
  }
  return (
    <details className="pw-fold">
      <summary aria-label={trans.__('Logs of the hosts of slice %1', slice.number)}>
        {trans.__('Logs of %1 hosts', hosts.length)}
      </summary>
      {hosts.map(host => (
        <HostLog key={host.index} {...props} {...host} label={trans.__('Host %1', host.index)} />
      ))}
    </details>
  );
}
