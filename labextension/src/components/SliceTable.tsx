/** The slice map's content as a table: for screen readers, and for whoever likes tables. */
import * as React from 'react';

import { ITrans } from '../models/trans';
import { age, HEALTH_TONES, healthWord, holderWord } from '../models/words';
import { ISlice } from '../models/wire';
import { Toned } from './Toned';

export interface ISliceTableProps {
  readonly slices: readonly ISlice[];
  readonly trans: ITrans;
  readonly now: number;
  /** Opens the log of a worker; without it there are no buttons for that. */
  openLog?(pod: string, title: string): void;
}

export function SliceTable(props: ISliceTableProps): JSX.Element {
  const { slices, trans, now, openLog } = props;
  return (
    <table className="pw-table">
      <caption className="pw-unseen">{trans.__('Slices')}</caption>
      <thead>
        <tr>
          <th scope="col">{trans.__('Slice')}</th>
          <th scope="col">{trans.__('Type')}</th>
          <th scope="col">{trans.__('State')}</th>
          <th scope="col">{trans.__('Hosts')}</th>
          <th scope="col">{trans.__('Held')}</th>
        </tr>
      </thead>
      <tbody>
        {slices.map(slice => (
          <Row key={slice.id} slice={slice} trans={trans} held={held(trans, slice, now)} openLog={openLog} />
        ))}
      </tbody>
    </table>
  );
}

interface IRowProps extends Pick<ISliceTableProps, 'trans' | 'openLog'> {
  readonly slice: ISlice;
  readonly held: string;
}

const Row = React.memo(function Row({ slice, trans, held, openLog }: IRowProps): JSX.Element {
  const ready = slice.hosts.filter(host => host.health === 'ready').length;
  const reasons = [...new Set(slice.hosts.map(host => host.reason).filter(Boolean))];
  return (
    <tr>
      <th scope="row">{slice.number}</th>
      <td>{slice.instance_type}</td>
      <td>
        <Toned tone={HEALTH_TONES[slice.health]}>{healthWord(trans, slice.health)}</Toned>
        {reasons.length > 0 && <span className="pw-muted"> {reasons.join(', ')}</span>}
      </td>
      <td>
        {trans.__('%1 of %2', ready, slice.hosts.length)}
        {openLog &&
          slice.hosts.map(
            (host, index) =>
              host.pod && (
                <button
                  key={index}
                  type="button"
                  className="pw-link"
                  aria-label={trans.__('Log of slice %1, host %2', slice.number, index)}
                  onClick={() => openLog(host.pod, `${slice.number}-${index}`)}
                >
                  {trans.__('Log')}
                </button>
              )
          )}
      </td>
      <td>{held}</td>
    </tr>
  );
});

function held(trans: ITrans, slice: ISlice, now: number): string {
  const who = holderWord(trans, slice);
  return slice.holder ? trans.__('%1, %2', who, age(trans, slice.holder.since, now)) : who;
}
