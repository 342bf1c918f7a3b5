/** What other extensions may use of this one. */
import { Token } from '@lumino/coreutils';

import { Api } from './models/api';
import { Model } from './models/model';
import { IScope } from './models/wire';

/** The page's one model, and the ways to ask the server. */
export interface IPathways {
  /** Sessions, events and the cluster in view, with a signal of their changes. */
  readonly model: Model;
  readonly api: Api;
  /** The cluster that fits the notebook in front and the settings. */
  readonly scope: IScope;
  /** Says whether a view of the cluster is shown: while none is, the server does not watch any. */
  setLooking(looking: boolean): void;
  /** Tries again to reach the server. */
  retry(): void;
}

export const IPathways = new Token<IPathways>('pathways-jupyter:IPathways', 'What runs on Pathways, and where.');

/** Every command; ids are part of what users put into their shortcuts. */
export enum CommandIDs {
  connect = 'pathways-jupyter:connect',
  insertConnect = 'pathways-jupyter:insert-connect-cell',
  disconnect = 'pathways-jupyter:disconnect',
  reconnect = 'pathways-jupyter:reconnect',
  showPanel = 'pathways-jupyter:show-panel',
  openLog = 'pathways-jupyter:open-log',
  openProxyLog = 'pathways-jupyter:open-proxy-log',
  sweep = 'pathways-jupyter:clean-up',
  quickstart = 'pathways-jupyter:open-quickstart',
  retry = 'pathways-jupyter:retry'
}

/** The settings' plugin; its schema is schema/plugin.json. */
export const SETTINGS = 'pathways-jupyter:plugin';
/** The name under which this package's texts are translated. */
export const DOMAIN = 'pathways_jupyter';
export const PANEL_ID = 'pathways-jupyter-panel';
export const PALETTE_CATEGORY = 'Pathways';
