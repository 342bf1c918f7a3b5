/** One slice of the map: who holds it since when, and its hosts with their logs. */
import { closeIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import { IHolding, sliceName } from '../models/holdings';
import { ITrans } from '../models/trans';
import { age, holdingWord, hostWords, sentence, silenceSentence, sliceWord } from '../models/words';
import { IHost, ISlice } from '../models/wire';
import { LinkButton } from './Button';
import { Toned } from './Toned';

export interface ISliceDetailsProps {
  readonly slice: ISlice;
  readonly holding: IHolding;
  readonly trans: ITrans;
  readonly now: number;
  readonly openLog: (pod: string, title: string) => void;
  readonly close: () => void;
}

export function SliceDetails(props: ISliceDetailsProps): React.JSX.Element {
  const { slice, holding, trans, now, openLog, close } = props;
  const box = React.useRef<HTMLElement>(null);
  // In a low panel, the details of a slice would open below the edge.
  React.useEffect(() => {
    // Nothing is returned: new browsers return a promise here, which React would call when the details close.
    box.current?.scrollIntoView({ block: 'nearest' });
  }, [slice.id]);
  const name = sentence(sliceName(trans, slice.number, holding.index));
  const chips = slice.hosts.reduce((sum, host) => sum + host.chips, 0);
  return (
    <section ref={box} className="pw-details-of" aria-label={trans.__('Details of %1', name)} data-details={slice.id}>
      <div className="pw-head">
        <h4>{name}</h4>
        <Toned tone={slice.tone}>{sliceWord(trans, slice, holding)}</Toned>
        <button type="button" className="pw-close" aria-label={trans.__('Close details')} onClick={close}>
          <closeIcon.react tag="span" width="14px" height="14px" />
        </button>
      </div>
      <dl className="pw-facts">
        <dt>{trans.__('Type')}</dt>
        <dd>{trans.__('%1, %2', slice.instance_type, trans._n('%1 chip', '%1 chips', chips))}</dd>
        <dt>{trans.__('Held by')}</dt>
        <dd>
          {holding.since
            ? trans.__('%1, for %2', holdingWord(trans, holding), age(trans, holding.since, now))
            : holdingWord(trans, holding)}
        </dd>
        {holding.reclaimable && (
          <>
            <dt>{trans.__('Its session')}</dt>
            <dd>{silenceSentence(trans, holding.reclaimable, now)}</dd>
          </>
        )}
      </dl>
      <ul className="pw-list" aria-label={trans.__('Hosts of %1', name)}>
        {slice.hosts.map((host, index) => (
          <Host key={index} slice={slice} host={host} index={index} trans={trans} openLog={openLog} />
        ))}
      </ul>
    </section>
  );
}

interface IHostProps extends Pick<ISliceDetailsProps, 'slice' | 'trans' | 'openLog'> {
  readonly host: IHost;
  readonly index: number;
}

function Host({ host, ...props }: IHostProps): React.JSX.Element {
  const { trans, index } = props;
  return (
    <li>
      <div className="pw-head">
        <b>{trans.__('Host %1', index)}</b>
        <Toned tone={host.tone}>{host.health}</Toned>
        {host.pod && <HostLog {...props} pod={host.pod} label={trans.__('Log')} />}
      </div>
      <span className="pw-muted">{hostWords(trans, host)}</span>
    </li>
  );
}

/** Opens the log of a host of a slice. */
export function HostLog(
  props: Omit<IHostProps, 'host'> & { readonly pod: string; readonly label: string }
): React.JSX.Element {
  const { slice, index, pod, label, trans, openLog } = props;
  const name = trans.__('Log of slice %1, host %2', slice.number, index);
  return <LinkButton label={label} name={name} run={() => openLog(pod, `${slice.number}-${index}`)} />;
}
