/** What stands between the page and the cluster, said once for all sections; nothing while the rows are up to date. */
import * as React from 'react';

import { Model } from '../models/model';
import { ITrans } from '../models/trans';
import { clock } from '../models/words';
import { Notice } from './Notice';

export function ClusterState({ model, trans }: { model: Model; trans: ITrans }): JSX.Element | null {
  const { cluster } = model;
  if (!model.linked || model.live) {
    // Without a link the panel says so at its top.
    return null;
  }
  if (!cluster || cluster.watch === 'loading') {
    const known = !!cluster && cluster.staleSince !== null;
    return known ? null : <Notice title={trans.__('Asking the cluster…')} />;
  }
  return (
    <Notice
      tone={cluster.watch === 'lost' ? 'wait' : 'fail'}
      title={cluster.problem?.message ?? trans.__('The cluster does not answer.')}
      hint={cluster.problem?.hint}
    />
  );
}

/** Rows of the cluster, which are grey while they are not up to date; or why there are none. */
export function Rows(props: IRowsProps): JSX.Element {
  const { model, trans, empty, unknown = trans.__('Not known.'), children } = props;
  if (empty === null) {
    const { staleSince } = model;
    return (
      <>
        {!model.live && staleSince !== null && <p className="pw-muted pw-late">{trans.__('As of %1:', clock(staleSince))}</p>}
        <div className={model.live ? '' : 'pw-stale'} data-live={model.live}>
          {children}
        </div>
      </>
    );
  }
  // An empty table means that there is nothing only while news arrive.
  return <p className="pw-muted">{model.live ? empty : unknown}</p>;
}

export interface IRowsProps {
  readonly model: Model;
  readonly trans: ITrans;
  /** Said of a table that is empty; null while it has rows. */
  readonly empty: string | null;
  /** Said of a table that is empty because nothing is known. */
  readonly unknown?: string;
  readonly children: React.ReactNode;
}
