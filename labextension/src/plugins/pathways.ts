/** Creates what all plugins share, and keeps the page's model up to date. */
import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { INotebookTracker, NotebookActions, NotebookPanel } from '@jupyterlab/notebook';
import { KernelMessage, Session } from '@jupyterlab/services';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { IDisposable } from '@lumino/disposable';

import { version } from '../../package.json';
import { Api } from '../models/api';
import { connects } from '../models/line';
import { Model } from '../models/model';
import { IPreferences, scopeOf } from '../models/preferences';
import { Updates } from '../models/updates';
import { DOMAIN, IPathways, SETTINGS } from '../tokens';

export const pathways: JupyterFrontEndPlugin<IPathways> = {
  id: SETTINGS,
  description: 'Provide sessions, slices and events.',
  autoStart: true,
  provides: IPathways,
  // Notebook 7 has pages without notebooks.
  optional: [INotebookTracker, ISettingRegistry, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    notebooks: INotebookTracker | null,
    registry: ISettingRegistry | null,
    translator: ITranslator | null
  ): IPathways => {
    const model = new Model(version);
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const api = new Api(app.serviceManager.serverSettings, trans);
    const updates = new Updates(model, api);
    let wanted: Partial<IPreferences> = {};
    let looking = false;
    const scope = () => scopeOf(wanted, model.session ?? model.place, model.sessions);
    const look = () => updates.look(looking ? scope() : null);

    model.changed.connect((_, facet) => {
      if (facet === 'sessions' || facet === 'front') {
        look();
      }
    });
    if (notebooks) {
      followNotebook(model, notebooks, app.shell);
      followCells(model, notebooks);
    }
    followNames(model, app.serviceManager.sessions, notebooks);
    const followPreferences: IPathways['followPreferences'] = async apply => {
      const settings = await registry?.load(SETTINGS);
      const read = () => settings && apply(settings.composite as unknown as IPreferences);
      settings?.changed.connect(read);
      read();
    };
    void followPreferences(chosen => {
      wanted = chosen;
      model.refresh = chosen.refresh;
      look();
    });
    void app.restored.then(() => updates.start());
    // Close the socket so that the server sees a clean end. The page may return from the browser's back/forward cache
    // with its state intact: then open it again.
    window.addEventListener('pagehide', () => updates.stop());
    window.addEventListener('pageshow', event => event.persisted && updates.start());
    return {
      model,
      api,
      trans,
      followPreferences,
      get scope() {
        return scope();
      },
      setLooking: now => {
        looking = now;
        look();
      },
      retry: () => updates.start()
    };
  }
};

/** Follow the paths of all kernels' notebooks. An open notebook knows its new name before the server reports it. */
function followNames(model: Model, running: Session.IManager, notebooks: INotebookTracker | null): void {
  const update = () => {
    const names = new Map<string, string>();
    for (const each of running.running()) {
      names.set(each.kernel?.id ?? '', each.path);
    }
    notebooks?.forEach(panel => names.set(panel.sessionContext.session?.kernel?.id ?? '', panel.context.path));
    names.delete('');
    model.setNotebooks(names);
  };
  running.runningChanged.connect(update);
  notebooks?.widgetAdded.connect((_, panel) => {
    panel.sessionContext.kernelChanged.connect(update);
    panel.context.pathChanged.connect(update);
  });
  update();
}

/** Follow the notebook in front and its kernel, which may start later or be replaced. */
function followNotebook(model: Model, notebooks: INotebookTracker, shell: JupyterFrontEnd.IShell): void {
  const update = () => {
    const panel = notebooks.currentWidget;
    model.setFront(
      panel && !panel.isDisposed
        ? { path: panel.context.path, kernelId: panel.sessionContext.session?.kernel?.id ?? '' }
        : null
    );
  };
  notebooks.widgetAdded.connect((_, panel: NotebookPanel) => {
    panel.sessionContext.kernelChanged.connect(update);
    panel.context.pathChanged.connect(update);
    panel.disposed.connect(() => queueMicrotask(update));
  });
  notebooks.currentChanged.connect(update);
  shell.currentChanged?.connect(update);
}

/** Follow the cells that connect their notebook: the server knows of a session some time after its cell began. */
function followCells(model: Model, notebooks: INotebookTracker): void {
  const running = new Map<IDisposable, NotebookPanel>();
  const report = () => model.setConnecting(new Set([...running.values()].map(panel => panel.context.path)));
  const forget = (isOver: (cell: IDisposable, panel: NotebookPanel) => boolean) => {
    const over = [...running].filter(each => isOver(...each));
    if (over.length) {
      over.forEach(([cell]) => running.delete(cell));
      report();
    }
  };
  NotebookActions.executionScheduled.connect((_, { notebook, cell }) => {
    const panel = notebooks.find(({ content }) => content === notebook);
    if (panel && cell.model.type === 'code' && connects(cell.model.sharedModel.getSource())) {
      running.set(cell, panel);
      report();
    }
  });
  NotebookActions.executed.connect((_, { cell }) => forget(each => each === cell));
  notebooks.widgetAdded.connect((_, panel) => {
    panel.context.pathChanged.connect(report);
    panel.disposed.connect(() => forget((_, each) => each === panel));
    panel.sessionContext.statusChanged.connect((_, status) => {
      if (['restarting', 'autorestarting', 'terminating', 'dead', 'unknown'].includes(status)) {
        // A cell of a kernel that ends may never be reported as executed.
        forget((_, each) => each === panel);
      }
    });
    panel.sessionContext.iopubMessage.connect((_, message) => {
      if (
        KernelMessage.isStatusMsg(message) &&
        message.content.execution_state === 'idle' &&
        (message.parent_header as KernelMessage.IHeader).msg_type === 'execute_request'
      ) {
        // Nor is one that was deleted while it ran; the others may be scheduled still. The session's status does not say
        // it: after a request of the debugger's it is idle already while a cell runs.
        forget((cell, each) => each === panel && cell.isDisposed);
      }
    });
  });
}
