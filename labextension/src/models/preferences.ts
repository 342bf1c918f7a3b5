/** The user's settings: JupyterLab checks them by schema/plugin.json, which has the defaults. */
import { IScope } from './scope';
import { ISession } from './sessionrows';

export interface IPreferences {
  readonly context: string;
  readonly namespace: string;
  /** Show the embedded cluster instead of a context. */
  readonly local: boolean;
  /** Minimum number of seconds between two updates of the cluster view. */
  readonly refresh: number;
  readonly notifications: boolean;
  readonly statusBar: boolean;
}

/**
 * Choose the cluster to show: that of the session or the kernel in front, else the one in the settings, else the youngest
 * session's.
 *
 * @param wanted The settings, as far as they are known.
 */
export function scopeOf(
  wanted: Partial<IPreferences>,
  front: { readonly scope: IScope } | null,
  sessions: readonly ISession[]
): IScope {
  if (front) {
    return front.scope;
  }
  const { context = '', namespace = '', local = false } = wanted;
  const chosen = { context: local ? '' : context, namespace, session: '', kernel: '', local };
  return context || local ? chosen : (sessions.at(-1)?.scope ?? chosen);
}
