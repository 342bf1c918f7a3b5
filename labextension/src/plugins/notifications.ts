/** Notifications about slices that go down and sessions that are lost, also while the sidebar is hidden. */
import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';

import { IToast, Toasts } from '../models/toasts';
import { ISession } from '../models/sessionrows';
import { CommandIDs, IPathways } from '../tokens';
import { IContent, labNotifications } from './notify';

export const notifications: JupyterFrontEndPlugin<void> = {
  id: 'pathways-jupyter:notifications',
  description: 'Notify when a slice goes down or recovers, and when a session is lost.',
  autoStart: true,
  requires: [IPathways],
  activate: (app: JupyterFrontEnd, { model, trans, followPreferences }: IPathways) => {
    const content = ({ text, type, action, autoClose }: IToast, session: ISession): IContent => {
      const reconnect = {
        label: trans.__('Reconnect'),
        callback: () => void app.commands.execute(CommandIDs.reconnect, { session: session.id })
      };
      const show = { label: trans.__('Show'), callback: () => void app.commands.execute(CommandIDs.showPanel) };
      return { message: text, type, autoClose, actions: [action === 'reconnect' ? reconnect : show] };
    };
    const notifier = {
      emit: (toast: IToast, session: ISession) => labNotifications.emit(content(toast, session)),
      update: (id: string, toast: IToast, session: ISession) => labNotifications.update(id, content(toast, session)),
      dismiss: (id: string) => labNotifications.dismiss(id)
    };
    const toasts = new Toasts(model, notifier, trans);
    void followPreferences(wanted => {
      toasts.wanted = wanted.notifications;
    });
  }
};
