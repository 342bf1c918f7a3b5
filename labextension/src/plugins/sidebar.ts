/** Adds the panel to the sidebar. */
import { ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IStateDB } from '@jupyterlab/statedb';
import {
  addIcon,
  CommandToolbarButton,
  LabIcon,
  ReactWidget,
  refreshIcon,
  settingsIcon
} from '@jupyterlab/ui-components';
import { Widget } from '@lumino/widgets';
import * as React from 'react';

import { actionsOf, ISectionBodyProps } from '../components/actions';
import { EventsSection } from '../components/EventsSection';
import { JobsSection } from '../components/JobsSection';
import { Notices } from '../components/Notices';
import { ISection, Sections } from '../components/Sections';
import { ServicesSection } from '../components/ServicesSection';
import { SessionSection } from '../components/SessionSection';
import { SlicesSection } from '../components/SlicesSection';
import { listed } from '../models/joblist';
import { PanelView } from '../models/remembered';
import { ITrans } from '../models/trans';
import { pathwaysIcon } from '../icon';
import { CommandIDs, IPathways, PANEL_ID, WITHOUT_ARGS } from '../tokens';
import { PathwaysPanel } from '../widgets/panel';

export const sidebar: JupyterFrontEndPlugin<void> = {
  id: 'pathways-jupyter:sidebar',
  description: 'Show sessions, slices, events, services, jobs and runs in the sidebar.',
  autoStart: true,
  requires: [IPathways],
  optional: [ILayoutRestorer, IStateDB],
  activate: (app: JupyterFrontEnd, pathways: IPathways, restorer: ILayoutRestorer | null, state: IStateDB | null) => {
    const { model, trans } = pathways;
    const actions = actionsOf((command, args) => void app.commands.execute(command, args));
    const view = new PanelView(state);
    const panel = new PathwaysPanel({
      label: trans.__('Pathways'),
      tools: toolbar(app, trans),
      notices: ReactWidget.create(React.createElement(Notices, { model, actions, trans })),
      sections: ReactWidget.create(
        React.createElement(Sections, {
          model,
          sections: sections({ model, actions, trans }, view),
          view
        })
      ),
      onLooking: looking => pathways.setLooking(looking)
    });
    panel.id = PANEL_ID;
    panel.title.icon = pathwaysIcon;
    panel.title.caption = trans.__('Pathways: slices, sessions and events');
    app.shell.add(panel, 'left', { rank: 350, type: 'Pathways' });
    restorer?.add(panel, PANEL_ID);
    app.commands.addCommand(CommandIDs.showPanel, {
      label: trans.__('Show Pathways'),
      icon: pathwaysIcon,
      describedBy: WITHOUT_ARGS,
      execute: () => app.shell.activateById(PANEL_ID)
    });
  }
};

function sections(common: ISectionBodyProps, view: PanelView): readonly ISection[] {
  const { model, trans } = common;
  const section = (name: string, label: string, body: ISection['body'], isFilled?: ISection['isFilled']) => ({
    name,
    label,
    body,
    isFilled
  });
  return [
    section('session', trans.__('Session'), () => React.createElement(SessionSection, common)),
    section('slices', trans.__('Slices'), () => React.createElement(SlicesSection, { ...common, view })),
    section('events', trans.__('Events'), () => React.createElement(EventsSection, { model, trans })),
    section('services', trans.__('Services & proxies'), () => React.createElement(ServicesSection, common)),
    section(
      'jobs',
      trans.__('Jobs'),
      () => React.createElement(JobsSection, common),
      ({ cluster }) => !!cluster && listed(cluster).length > 0
    )
  ];
}

function toolbar(app: JupyterFrontEnd, trans: ITrans): readonly (readonly [string, Widget])[] {
  const { commands } = app;
  const tool = (id: string, icon: LabIcon, caption: string, args = {}) =>
    new CommandToolbarButton({ commands, id, args, icon, label: '', caption });
  return [
    ['connect', tool(CommandIDs.connect, addIcon, trans.__('Connect this notebook to TPUs'))],
    ['refresh', tool(CommandIDs.retry, refreshIcon, trans.__('Refresh'))],
    ['settings', tool('settingeditor:open', settingsIcon, trans.__('Settings of Pathways'), { query: 'Pathways' })]
  ];
}
