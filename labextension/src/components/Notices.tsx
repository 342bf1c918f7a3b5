/** What concerns the whole panel: a problem with the connection, or the first steps of a new user. */
import * as React from 'react';

import { Link } from '../models/model';
import { ISectionBodyProps } from './actions';
import { Button } from './Button';
import { useModel, useModelValue } from './hooks';
import { Notice } from './Notice';

export function Notices({ model, actions, trans }: ISectionBodyProps): React.JSX.Element {
  useModel(model, 'link', 'front', 'cluster');
  const nothingSetUp = useModelValue(model, each => each.nothingSetUp);
  return (
    <>
      <LinkState link={model.link} actions={actions} trans={trans} />
      {nothingSetUp && <Welcome model={model} actions={actions} trans={trans} />}
    </>
  );
}

/** The problem with the connection to the server; nothing while it works. */
function LinkState({ link, actions, trans }: Omit<ISectionBodyProps, 'model'> & { link: Link }): React.JSX.Element {
  const retry = { label: trans.__('Try again'), run: () => actions.retry() };
  switch (link.state) {
    case 'missing':
      return (
        <Notice
          tone="fail"
          title={trans.__('The Jupyter server does not have pathways_jupyter.')}
          hint={trans.__(
            'Install it in the environment that runs the server: pip install pathways_jupyter. Then restart the server.'
          )}
          actions={[retry]}
        />
      );
    case 'refused':
      return (
        <Notice
          tone="fail"
          title={trans.__('The Jupyter server denies access to Pathways.')}
          hint={trans.__('Log in again, or ask your administrator for access to the resource “pathways”.')}
          actions={[retry]}
        />
      );
    case 'differs':
      return (
        <Notice
          tone="wait"
          title={trans.__('The sidebar is version %1, the server extension version %2.', link.page, link.server)}
          hint={trans.__('Reload the page; if that does not help, restart the Jupyter server.')}
        />
      );
    case 'unreadable':
      return (
        <Notice
          tone="wait"
          title={trans.__('An update from the Jupyter server could not be read. What is shown may be out of date.')}
          hint={trans.__('The log of the Jupyter server, or the console of this browser, says why.')}
          actions={[retry]}
        />
      );
    case 'broken':
      return (
        <Notice tone="wait" title={trans.__('The Jupyter server does not answer. Trying again…')} actions={[retry]} />
      );
    default:
      return <></>;
  }
}

/** The panel of a first-time user: no kubeconfig, no embedded cluster, and nothing wrong. */
function Welcome({ model, actions, trans }: ISectionBodyProps): React.JSX.Element {
  const starting = model.embeddedStarts || model.connecting;
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
        {model.front && <Button label={trans.__('Connect…')} disabled={starting} run={() => actions.connect()} />}
      </div>
      <p className="pw-muted">
        {trans.__(
          'To use your own cluster, add it to the kubeconfig of the Jupyter server; it then appears here automatically.'
        )}
      </p>
    </section>
  );
}
