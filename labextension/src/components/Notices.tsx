/** What concerns the whole panel: a problem with the connection, or the first steps of a new user. */
import * as React from 'react';

import { Model } from '../models/model';
import { ITrans } from '../models/trans';
import { IActions } from './actions';
import { useModel, useModelValue } from './hooks';
import { LinkState } from './LinkState';
import { Welcome } from './Welcome';

export function Notices(props: { model: Model; actions: IActions; trans: ITrans }): React.JSX.Element {
  const { model, actions, trans } = props;
  useModel(model, 'link', 'front', 'cluster');
  const nothingSetUp = useModelValue(model, each => each.nothingSetUp);
  return (
    <>
      <LinkState link={model.link} actions={actions} trans={trans} />
      {nothingSetUp && (
        <Welcome
          front={model.front}
          starting={model.embeddedStarts || model.connecting}
          actions={actions}
          trans={trans}
        />
      )}
    </>
  );
}
