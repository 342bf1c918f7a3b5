/** Everything JupyterLab loads from this package. */
import { JupyterFrontEndPlugin } from '@jupyterlab/application';

const hello: JupyterFrontEndPlugin<void> = {
  id: 'pathways-jupyter:plugin',
  description: 'Shows slices, sessions and events.',
  autoStart: true,
  activate: () => undefined
};

export default [hello];
