/** The panel of a first-time user: no kubeconfig, no embedded cluster, and nothing wrong. */
import * as React from 'react';

import { IFront } from '../models/model';
import { ITrans } from '../models/trans';
import { IActions } from './actions';

export function Welcome({
  front,
  actions,
  trans
}: {
  front: IFront | null;
  actions: IActions;
  trans: ITrans;
}): React.JSX.Element {
  return (
    <section className="pw-welcome" aria-label={trans.__('First steps')}>
      <h2>{trans.__('Put TPUs into a notebook')}</h2>
      <p>
        {trans.__(
          'No cluster is configured yet. The quickstart needs none: it starts a small cluster with simulated TPUs on this machine.'
        )}
      </p>
      <div className="pw-buttons">
        <button type="button" className="pw-button pw-primary" onClick={() => actions.quickstart()}>
          {trans.__('Open the quickstart')}
        </button>
        {front && (
          <button type="button" className="pw-button" onClick={() => actions.connect()}>
            {trans.__('Connect…')}
          </button>
        )}
      </div>
      <p className="pw-muted">
        {trans.__(
          'To use your own cluster, add it to the kubeconfig of the Jupyter server; it then appears here automatically.'
        )}
      </p>
    </section>
  );
}
