/** Status bar item: the session of the notebook in front; hidden when there is none. */
import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ReactWidget } from '@jupyterlab/ui-components';
import { Signal } from '@lumino/signaling';
import * as React from 'react';

import { StatusItem } from '../components/StatusItem';
import { CommandIDs, IPathways } from '../tokens';

export const statusbar: JupyterFrontEndPlugin<void> = {
  id: 'pathways-jupyter:statusbar',
  description: 'Show the session of the notebook in front in the status bar.',
  autoStart: true,
  requires: [IPathways],
  // Notebook 7 has no status bar.
  optional: [IStatusBar],
  activate: (app: JupyterFrontEnd, { model, trans, followPreferences }: IPathways, bar: IStatusBar | null) => {
    if (!bar) {
      return;
    }
    const item = ReactWidget.create(
      React.createElement(StatusItem, { model, trans, open: () => void app.commands.execute(CommandIDs.showPanel) })
    );
    item.addClass('jp-Pathways');
    const changed = new Signal<object, void>(model);
    model.changed.connect(() => changed.emit());
    let wanted = true;
    void followPreferences(preferences => {
      wanted = preferences.statusBar;
      changed.emit();
    });
    bar.registerStatusItem('pathways-jupyter:session', {
      item,
      align: 'left',
      rank: 20,
      isActive: () => wanted && !!model.session,
      activeStateChanged: changed
    });
  }
};
