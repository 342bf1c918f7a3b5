/** The plugins that JupyterLab loads from this package. */
import { cards } from './plugins/cards';
import { commands } from './plugins/commands';
import { connect } from './plugins/connect';
import { jobs } from './plugins/jobs';
import { launcher } from './plugins/launcher';
import { logs } from './plugins/logs';
import { notifications } from './plugins/notifications';
import { pathways } from './plugins/pathways';
import { profile } from './plugins/profile';
import { resume } from './plugins/resume';
import { running } from './plugins/running';
import { sidebar } from './plugins/sidebar';
import { statusbar } from './plugins/statusbar';

export { IPathways } from './tokens';

export default [
  pathways,
  sidebar,
  cards,
  connect,
  resume,
  commands,
  logs,
  jobs,
  profile,
  notifications,
  running,
  statusbar,
  launcher
];
