/** Makes the page's one model, and keeps it up to date: the only plugin that sends requests by itself. */
import { ILabShell, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { Session } from '@jupyterlab/services';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { version } from '../../package.json';
import { Api } from '../models/api';
import { Model } from '../models/model';
import { DEFAULTS, preferences, scopeOf } from '../models/preferences';
import { Updates } from '../models/updates';
import { DOMAIN, IPathways, SETTINGS } from '../tokens';

export const pathways: JupyterFrontEndPlugin<IPathways> = {
  id: SETTINGS,
  description: 'Knows sessions, slices and events.',
  autoStart: true,
  provides: IPathways,
  requires: [INotebookTracker],
  optional: [ISettingRegistry, ILabShell, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    notebooks: INotebookTracker,
    registry: ISettingRegistry | null,
    shell: ILabShell | null,
    translator: ITranslator | null
  ): IPathways => {
    const model = new Model(version);
    const api = new Api(app.serviceManager.serverSettings, (translator ?? nullTranslator).load(DOMAIN));
    const updates = new Updates(model, api);
    let wanted = DEFAULTS;
    let looking = false;
    const scope = () => scopeOf(wanted, model.session, model.sessions);
    const look = () => updates.look(looking ? scope() : null);

    model.changed.connect((_, facet) => {
      if (facet === 'sessions' || facet === 'front') {
        look();
      }
    });
    followNotebook(model, notebooks, shell);
    followNames(model, app.serviceManager.sessions, notebooks);
    void registry?.load(SETTINGS).then(settings => {
      const read = () => {
        wanted = preferences(settings.composite);
        model.refresh = wanted.refresh;
        look();
      };
      settings.changed.connect(read);
      read();
    });
    void app.restored.then(() => updates.start());
    // A socket that is closed and not cut off ends cleanly on the server, too; a page may come back from the browser's
    // cache with everything as it was.
    window.addEventListener('pagehide', () => updates.stop());
    window.addEventListener('pageshow', event => event.persisted && updates.start());
    return {
      model,
      api,
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

/** What the notebooks of all kernels are called now: those that are open know best. */
function followNames(model: Model, running: Session.IManager, notebooks: INotebookTracker): void {
  const update = () => {
    const names = new Map<string, string>();
    for (const each of running.running()) {
      names.set(each.kernel?.id ?? '', each.path);
    }
    notebooks.forEach(panel => names.set(panel.sessionContext.session?.kernel?.id ?? '', panel.context.path));
    names.delete('');
    model.setNotebooks(names);
  };
  running.runningChanged.connect(update);
  notebooks.widgetAdded.connect((_, panel) => {
    panel.sessionContext.kernelChanged.connect(update);
    panel.context.pathChanged.connect(update);
  });
  update();
}

/** The notebook in front, and its kernel, which may come later and change. */
function followNotebook(model: Model, notebooks: INotebookTracker, shell: ILabShell | null): void {
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
  shell?.currentChanged.connect(update);
}
