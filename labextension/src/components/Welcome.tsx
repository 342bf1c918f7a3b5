/** The panel of a first-time user: no kubeconfig, no embedded cluster, and nothing wrong. */
import * as React from 'react';

import { IFront } from '../models/model';
import { ITrans } from '../models/trans';
import { IActions } from './actions';
import { Button } from './Button';

export function Welcome({
  front,
  starting,
  actions,
  trans
}: {
  front: IFront | null;
  /** Whether the embedded cluster starts already. */
  starting: boolean;
  actions: IActions;
  trans: ITrans;
}): React.JSX.Element {
  return (
    <section className="pw-welcome" aria-label={trans.__('First steps')}>
      <h2>{trans.__('Put TPUs into a notebook')}</h2>
      <p>
        {trans.__(
          'No cluster is configured yet. An embedded cluster with simulated TPUs on this machine is enough for the first steps.'
        )}
      </p>
      <div className="pw-buttons">
        <Button
          label={trans.__('Start the embedded cluster')}
          kind="primary"
          disabled={starting}
          run={() => actions.startEmbedded()}
        />
        <Button label={trans.__('Open the quickstart')} run={() => actions.quickstart()} />
        {front && <Button label={trans.__('Connect…')} disabled={starting} run={() => actions.connect()} />}
      </div>
      <p className="pw-muted">
        {trans.__(
          'To use your own cluster, add it to the kubeconfig of the Jupyter server; it then appears here automatically.'
        )}
      </p>
    </section>
  );
}
