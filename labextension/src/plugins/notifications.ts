/** Tells slices down and healed, and lost sessions, whatever the person looks at. */
import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { notice } from '../models/notices';
import { preferences } from '../models/preferences';
import { CommandIDs, DOMAIN, IPathways, SETTINGS } from '../tokens';

export const notifications: JupyterFrontEndPlugin<void> = {
  id: 'pathways-jupyter:notifications',
  description: 'Tells when a slice goes down or heals, and when a session is lost.',
  autoStart: true,
  requires: [IPathways],
  optional: [ISettingRegistry, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    { model }: IPathways,
    registry: ISettingRegistry | null,
    translator: ITranslator | null
  ) => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    let wanted = true;
    void registry?.load(SETTINGS).then(settings => {
      const read = () => {
        wanted = preferences(settings.composite).notifications;
      };
      settings.changed.connect(read);
      read();
    });
    model.happened.connect((_, { session, event }) => {
      const told = wanted ? notice(trans, session, event) : null;
      if (!told) {
        return;
      }
      const reconnect = {
        label: trans.__('Reconnect'),
        callback: () => void app.commands.execute(CommandIDs.reconnect, { session: session.id })
      };
      const show = { label: trans.__('Show'), callback: () => void app.commands.execute(CommandIDs.showPanel) };
      Notification.emit(told.text, told.type, {
        actions: [told.action === 'reconnect' ? reconnect : show],
        autoClose: told.type === 'error' ? false : 8000
      });
    });
  }
};
