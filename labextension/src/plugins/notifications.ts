/**
 * Notifications about slices that go down, and sessions that are lost or not used, also while the sidebar is hidden; and
 * the question about sessions that go on when the page is closed.
 */
import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';

import { leaving } from '../models/leaving';
import { IToast, Toasts } from '../models/toasts';
import { ISession } from '../models/sessionrows';
import { acts } from '../models/sessions';
import { UnusedSessions } from '../models/unused';
import { CommandIDs, IPathways } from '../tokens';
import { IContent, labNotifications } from './notify';

export const notifications: JupyterFrontEndPlugin<void> = {
  id: 'pathways-jupyter:notifications',
  description: 'Notify when a slice goes down or recovers, and when a session is lost or not used.',
  autoStart: true,
  requires: [IPathways],
  activate: (app: JupyterFrontEnd, { model, trans, followPreferences }: IPathways) => {
    const button = (label: string, command: CommandIDs, args = {}) => ({
      label,
      callback: () => void app.commands.execute(command, args)
    });
    const content = ({ text, type, action, autoClose }: IToast, { id }: ISession): IContent => {
      const reconnect = button(trans.__('Reconnect'), CommandIDs.reconnect, { session: id });
      const show = button(trans.__('Show'), CommandIDs.showPanel);
      return { message: text, type, autoClose, actions: [action === 'reconnect' ? reconnect : show] };
    };
    const dismiss = (id: string) => labNotifications.dismiss(id);
    const notifier = {
      emit: (toast: IToast, session: ISession) => labNotifications.emit(content(toast, session)),
      update: (id: string, toast: IToast, session: ISession) => labNotifications.update(id, content(toast, session)),
      dismiss
    };
    const ask = (message: string, session: ISession) => {
      const args = { session: session.id };
      const actions = [
        ...(acts(session, 'suspend') ? [button(trans.__('Suspend'), CommandIDs.suspend, args)] : []),
        button(trans.__('Keep'), CommandIDs.keep, args),
        button(trans.__('Disconnect'), CommandIDs.disconnect, { ...args, ask: true })
      ];
      return labNotifications.emit({ message, type: 'warning', autoClose: false, actions });
    };
    const toasts = new Toasts(model, notifier, trans);
    const unused = new UnusedSessions(model, { ask, dismiss });
    void followPreferences(wanted => {
      toasts.wanted = unused.wanted = wanted.notifications;
    });
    window.addEventListener('beforeunload', event => {
      const found = toasts.wanted ? leaving(model, window.sessionStorage, trans) : null;
      if (found) {
        // The browser asks in its own words; who stays reads ours.
        event.preventDefault();
        const suspend = button(trans.__('Suspend'), CommandIDs.suspend, { session: found.session.id });
        labNotifications.emit({ message: found.text, type: 'warning', autoClose: false, actions: [suspend] });
      }
    });
  }
};
