/** Says when a cluster cannot be heard, and when there is nothing in it. */
import * as React from 'react';

import { Model } from '../models/model';
import { ITrans } from '../models/trans';
import { Notice } from './Notice';

export function ClusterState(props: { model: Model; trans: ITrans; empty: string }): JSX.Element | null {
  const { model, trans, empty } = props;
  const cluster = model.cluster;
  if (!cluster || cluster.hearing === 'loading') {
    return <Notice title={trans.__('Asking the cluster…')} />;
  }
  if (cluster.hearing !== 'live') {
    return (
      <Notice
        tone={cluster.hearing === 'lost' ? 'wait' : 'fail'}
        title={cluster.problem?.message ?? trans.__('The cluster cannot be heard.')}
        hint={cluster.problem?.hint}
      />
    );
  }
  return empty ? <Notice title={empty} hint={trans.__('A Shared Pathways Service brings slices; pathways-jupyter doctor checks for one.')} /> : null;
}
