/** The problem with the cluster, shown once for all sections; nothing while the rows are up to date. */
import * as React from 'react';

import { Model } from '../models/model';
import { ITrans } from '../models/trans';
import { clock } from '../models/words';
import { ISectionBodyProps } from './actions';
import { Notice } from './Notice';

export function ClusterState({ model, actions, trans }: ISectionBodyProps): React.JSX.Element | null {
  const { cluster } = model;
  if (!model.linked || model.live) {
    // LinkState shows this problem at the top of the panel.
    return null;
  }
  if (!cluster || cluster.watch === 'loading') {
    const hasTables = !!cluster && cluster.staleSince !== null;
    return hasTables ? null : <Notice title={trans.__('Loading from the cluster…')} />;
  }
  const { problem } = cluster;
  const isEnded = !!problem?.embedded_ended;
  if (isEnded && model.embeddedStarts) {
    return <Notice tone="wait" title={trans.__('The embedded cluster is starting…')} />;
  }
  return (
    <Notice
      tone={cluster.watch === 'lost' ? 'wait' : 'fail'}
      title={problem?.message ?? trans.__('The cluster does not answer.')}
      hint={isEnded ? undefined : problem?.hint}
      actions={
        isEnded
          ? [{ label: trans.__('Start the embedded cluster'), primary: true, run: () => actions.startEmbedded() }]
          : []
      }
    />
  );
}

/** Rows of the cluster, gray while they are out of date; or a text if there are none. */
export function Rows(props: IRowsProps): React.JSX.Element {
  const { model, trans, empty, unknown = trans.__('Unknown.'), children } = props;
  if (empty === null) {
    const { staleSince } = model;
    return (
      <>
        {!model.live && staleSince !== null && (
          <p className="pw-muted pw-late">{trans.__('Not watched since %1:', clock(staleSince))}</p>
        )}
        <div className={model.live ? '' : 'pw-stale'} data-live={model.live}>
          {children}
        </div>
      </>
    );
  }
  // Only while updates arrive does an empty table mean that the cluster has none.
  return <p className="pw-muted">{model.live ? empty : unknown}</p>;
}

export interface IRowsProps {
  readonly model: Model;
  readonly trans: ITrans;
  /** Text for an empty table; null while it has rows. */
  readonly empty: string | null;
  /** Text for a table that is empty because nothing is known yet. */
  readonly unknown?: string;
  readonly children: React.ReactNode;
}
