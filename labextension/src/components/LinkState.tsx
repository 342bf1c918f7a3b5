/** The problem with the connection to the server; nothing while it works. */
import * as React from 'react';

import { Link } from '../models/model';
import { ITrans } from '../models/trans';
import { IActions } from './actions';
import { Notice } from './Notice';

export function LinkState({
  link,
  actions,
  trans
}: {
  link: Link;
  actions: IActions;
  trans: ITrans;
}): React.JSX.Element | null {
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
          action={retry}
        />
      );
    case 'refused':
      return (
        <Notice
          tone="fail"
          title={trans.__('The Jupyter server denies access to Pathways.')}
          hint={trans.__('Log in again, or ask your administrator for access to the resource “pathways”.')}
          action={retry}
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
          action={retry}
        />
      );
    case 'broken':
      return (
        <Notice tone="wait" title={trans.__('The Jupyter server does not answer. Trying again…')} action={retry} />
      );
    default:
      return null;
  }
}
