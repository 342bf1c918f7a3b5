/** Logs of proxies, workers, resource managers, jobs and runs in tabs, which a reload of the page restores. */
import { ILabShell, ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import { ReactWidget } from '@jupyterlab/ui-components';
import { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import * as React from 'react';

import { LogView } from '../components/LogView';
import { Log, logKey, logName, LogSource } from '../models/log';
import { IScope } from '../models/scope';
import { CommandIDs, IPathways } from '../tokens';
import { openTab, showAgain } from './tabs';

export const logs: JupyterFrontEndPlugin<void> = {
  id: 'pathways-jupyter:logs',
  description: 'Show the logs of proxies, workers, resource managers, jobs and runs.',
  autoStart: true,
  requires: [IPathways],
  optional: [ILabShell, ILayoutRestorer],
  activate: (app: JupyterFrontEnd, pathways: IPathways, lab: ILabShell | null, restorer: ILayoutRestorer | null) => {
    const { trans } = pathways;
    const tracker = new WidgetTracker<MainAreaWidget>({ namespace: 'pathways-jupyter-logs' });
    const shown = new WeakMap<MainAreaWidget, ReadonlyPartialJSONObject>();
    app.commands.addCommand(CommandIDs.openLog, {
      label: trans.__('Open a Pathways Log'),
      describedBy: {
        args: {
          type: 'object',
          properties: {
            pod: { type: 'string', description: 'Name of the pod' },
            job: { type: 'string', description: 'Name of the job whose program wrote the log; instead of a pod' },
            title: { type: 'string', description: 'Title of the tab' },
            scope: { type: 'string', description: 'The cluster, as JSON; default: the cluster in view' }
          }
        }
      },
      execute: async args => {
        const { pod, job, title, scope: json } = args as ILogArgs;
        const scope = json ? (JSON.parse(json) as IScope) : pathways.scope;
        const source: LogSource | undefined = pod ? { pod, scope } : job ? { job, scope } : undefined;
        if (!source) {
          return;
        }
        const name = logName(source);
        const id = `pathways-jupyter-log-${logKey(source)}`;
        if (showAgain(app, lab, id)) {
          return;
        }
        const log = new Log(name, (follow, take, signal) => pathways.api.log(source, follow, take, signal));
        const content = ReactWidget.create(React.createElement(LogView, { log, trans }));
        const widget = openTab(app, lab, id, trans.__('Log: %1', title ?? name), content);
        widget.title.caption = name;
        shown.set(widget, { ...args, scope: JSON.stringify(scope) });
        widget.disposed.connect(() => log.stop());
        await tracker.add(widget);
      }
    });
    void restorer?.restore(tracker, {
      command: CommandIDs.openLog,
      args: widget => shown.get(widget) ?? {},
      name: widget => widget.id
    });
  }
};

interface ILogArgs {
  readonly pod?: string;
  readonly job?: string;
  readonly title?: string;
  /** The cluster, as JSON. */
  readonly scope?: string;
}
