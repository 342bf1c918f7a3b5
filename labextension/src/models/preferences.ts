/** The user's settings, validated. */
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

export const DEFAULTS: IPreferences = {
  context: '',
  namespace: '',
  local: false,
  refresh: 0,
  notifications: true,
  statusBar: true
};

/** Parse settings. A value of the wrong type counts as not set: the schema is not checked for overrides.json. */
export function preferences(values: { readonly [name: string]: unknown }): IPreferences {
  const text = (name: string) => (typeof values[name] === 'string' ? values[name] : '');
  const flag = (name: 'local' | 'notifications' | 'statusBar') =>
    typeof values[name] === 'boolean' ? values[name] : DEFAULTS[name];
  return {
    context: text('context'),
    namespace: text('namespace'),
    local: flag('local'),
    refresh: typeof values.refresh === 'number' && values.refresh > 0 ? values.refresh : DEFAULTS.refresh,
    notifications: flag('notifications'),
    statusBar: flag('statusBar')
  };
}

/** Choose the cluster to show: that of the session or the kernel in front, else the one in the settings, else the youngest session's. */
export function scopeOf(
  wanted: IPreferences,
  front: { readonly scope: IScope } | null,
  sessions: readonly ISession[]
): IScope {
  if (front) {
    return front.scope;
  }
  if (wanted.context || wanted.local) {
    return {
      context: wanted.local ? '' : wanted.context,
      namespace: wanted.namespace,
      session: '',
      kernel: '',
      local: wanted.local
    };
  }
  const youngest = sessions.at(-1);
  return youngest?.scope ?? { context: '', namespace: wanted.namespace, session: '', kernel: '', local: false };
}
