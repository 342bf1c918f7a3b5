/** Public API for other extensions. */
import { Token } from '@lumino/coreutils';

import { Api } from './models/api';
import { Model } from './models/model';
import { IPreferences } from './models/preferences';
import { IScope } from './models/scope';
import { ITrans } from './models/trans';

/** The page's model, the client of the server extension, and what all plugins share. */
export interface IPathways {
  /** Sessions, events and the cluster in view; emits a signal when they change. */
  readonly model: Model;
  readonly api: Api;
  /** This package's texts in the user's language. */
  readonly trans: ITrans;
  /** Call `apply` with the user's settings once they are loaded, and after each change; never where there are none. */
  readonly followPreferences: (apply: (wanted: IPreferences) => void) => Promise<void>;
  /** The cluster to show, chosen by the notebook in front and the settings. */
  readonly scope: IScope;
  /** Report whether a view of the cluster is visible; the server watches no cluster while none is. */
  setLooking(looking: boolean): void;
  /** Reconnect to the server now. */
  retry(): void;
}

export const IPathways = new Token<IPathways>('pathways-jupyter:IPathways', 'What runs on Pathways, and where.');

/** All commands. Users refer to these ids in their shortcuts, so they must not change. */
export enum CommandIDs {
  connect = 'pathways-jupyter:connect',
  insertConnect = 'pathways-jupyter:insert-connect-cell',
  disconnect = 'pathways-jupyter:disconnect',
  reconnect = 'pathways-jupyter:reconnect',
  suspend = 'pathways-jupyter:suspend',
  resume = 'pathways-jupyter:resume',
  keep = 'pathways-jupyter:keep',
  showPanel = 'pathways-jupyter:show-panel',
  openLog = 'pathways-jupyter:open-log',
  openProxyLog = 'pathways-jupyter:open-proxy-log',
  profile = 'pathways-jupyter:profile',
  showJob = 'pathways-jupyter:show-job',
  suspendJob = 'pathways-jupyter:suspend-job',
  resumeJob = 'pathways-jupyter:resume-job',
  deleteJob = 'pathways-jupyter:delete-job',
  connectJob = 'pathways-jupyter:connect-job',
  startEmbedded = 'pathways-jupyter:start-embedded-cluster',
  sweep = 'pathways-jupyter:clean-up',
  quickstart = 'pathways-jupyter:open-quickstart',
  retry = 'pathways-jupyter:retry'
}

/** Describes commands without arguments. */
export const WITHOUT_ARGS = { args: { type: 'object', properties: {} } } as const;

/** The settings' plugin; its schema is schema/plugin.json. */
export const SETTINGS = 'pathways-jupyter:plugin';
/** The name under which this package's texts are translated. */
export const DOMAIN = 'pathways_jupyter';
export const PANEL_ID = 'pathways-jupyter-panel';
