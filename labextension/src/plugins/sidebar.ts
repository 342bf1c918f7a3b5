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
import { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import { Widget } from '@lumino/widgets';
import * as React from 'react';

import { IActions } from '../components/actions';
import { EventsSection } from '../components/EventsSection';
import { JobsSection } from '../components/JobsSection';
import { Notices } from '../components/Notices';
import { ISection, Sections } from '../components/Sections';
import { ServicesSection } from '../components/ServicesSection';
import { SessionSection } from '../components/SessionSection';
import { SlicesSection } from '../components/SlicesSection';
import { History } from '../models/history';
import { listed } from '../models/joblist';
import { Model } from '../models/model';
import { Folding, SliceView } from '../models/remembered';
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
    const run = (command: string, args: ReadonlyPartialJSONObject = {}) => void app.commands.execute(command, args);
    const actions: IActions = {
      connect: wait => run(CommandIDs.connect, { wait }),
      disconnect: session => run(CommandIDs.disconnect, { session: session.id }),
      reconnect: session => run(CommandIDs.reconnect, { session: session.id }),
      suspend: session => run(CommandIDs.suspend, { session: session.id }),
      resume: (session, how) => run(CommandIDs.resume, { session: session.id, ...how }),
      keep: session => run(CommandIDs.keep, { session: session.id }),
      profile: session => run(CommandIDs.profile, { session: session.id }),
      openLog: (pod, title) => run(CommandIDs.openLog, { pod, title }),
      showJob: job => run(CommandIDs.showJob, { job: job.name }),
      openJobLog: job => run(CommandIDs.openLog, { job: job.name }),
      connectJob: job => run(CommandIDs.connectJob, { job: job.name }),
      actOnJob: (job, action) => run(JOB_COMMANDS[action], { job: job.name }),
      startEmbedded: () => run(CommandIDs.startEmbedded),
      sweep: () => run(CommandIDs.sweep),
      quickstart: () => run(CommandIDs.quickstart),
      retry: () => run(CommandIDs.retry)
    };
    const panel = new PathwaysPanel({
      label: trans.__('Pathways'),
      tools: toolbar(app, trans),
      notices: ReactWidget.create(React.createElement(Notices, { model, actions, trans })),
      sections: ReactWidget.create(
        React.createElement(Sections, {
          model,
          sections: sections(model, actions, { view: new SliceView(state), history: new History(model) }, trans),
          folding: new Folding(state)
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

const JOB_COMMANDS = {
  suspend: CommandIDs.suspendJob,
  resume: CommandIDs.resumeJob,
  delete: CommandIDs.deleteJob
} as const;

function sections(
  model: Model,
  actions: IActions,
  slices: { view: SliceView; history: History },
  trans: ITrans
): readonly ISection[] {
  const common = { model, actions, trans };
  const section = (name: string, label: string, body: ISection['body'], isFilled?: ISection['isFilled']) => ({
    name,
    label,
    body,
    isFilled
  });
  return [
    section('session', trans.__('Session'), () => React.createElement(SessionSection, common)),
    section('slices', trans.__('Slices'), () => React.createElement(SlicesSection, { ...common, ...slices })),
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
