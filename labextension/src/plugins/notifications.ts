/** Notifications about slices that go down and sessions that are lost, also while the sidebar is hidden. */
import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';

import { DrawnNotifier } from '../models/drawnnotifier';
import { IToast, Toasts } from '../models/toasts';
import { ISession } from '../models/sessionrows';
import { CommandIDs, IPathways } from '../tokens';
import { drawn } from './notify';

export const notifications: JupyterFrontEndPlugin<void> = {
  id: 'pathways-jupyter:notifications',
  description: 'Notify when a slice goes down or recovers, and when a session is lost.',
  autoStart: true,
  requires: [IPathways],
  activate: (app: JupyterFrontEnd, { model, trans, followPreferences }: IPathways) => {
    const options = (toast: IToast, session: ISession) => {
      const reconnect = {
        label: trans.__('Reconnect'),
        callback: () => void app.commands.execute(CommandIDs.reconnect, { session: session.id })
      };
      const show = { label: trans.__('Show'), callback: () => void app.commands.execute(CommandIDs.showPanel) };
      return { actions: [toast.action === 'reconnect' ? reconnect : show], autoClose: toast.autoClose };
    };
    const notifier = new DrawnNotifier({
      emit: (toast, session) => Notification.emit(toast.text, toast.type, options(toast, session)),
      has: id => Notification.manager.has(id),
      drawn,
      update: (id, toast, session) =>
        Notification.update({ id, message: toast.text, type: toast.type, ...options(toast, session) }),
      dismiss: id => Notification.dismiss(id)
    });
    const toasts = new Toasts(model, notifier, trans);
    void followPreferences(wanted => {
      toasts.wanted = wanted.notifications;
    });
  }
};
