/** Shows the cards of sessions in notebooks as live while the sessions live. */
import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';

import { liveCards } from '../models/cards';
import { IPathways } from '../tokens';

export const cards: JupyterFrontEndPlugin<void> = {
  id: 'pathways-jupyter:cards',
  description: 'Show the cards of sessions in notebooks as live while the sessions live.',
  autoStart: true,
  requires: [IPathways],
  activate: (_app: JupyterFrontEnd, { model }: IPathways) => {
    const style = document.head.appendChild(document.createElement('style'));
    model.changed.connect((_, facet) => {
      if (facet !== 'sessions' && facet !== 'link') {
        return;
      }
      // Without updates from the server it is not known what lives.
      const rules = model.linked ? liveCards(model.sessions) : '';
      if (style.textContent !== rules) {
        style.textContent = rules;
      }
    });
  }
};
