/** The settings, read into what they mean. */
import { IScope, ISession } from './wire';

export interface IPreferences {
  readonly context: string;
  readonly namespace: string;
  /** Prefer the embedded cluster where no context is set. */
  readonly local: boolean;
  /** Seconds between two drawings of the cluster, at least. */
  readonly refresh: number;
  readonly notifications: boolean;
  readonly statusBar: boolean;
}

export const DEFAULTS: IPreferences = { context: '', namespace: '', local: false, refresh: 0, notifications: true, statusBar: true };

/** Values of the wrong type count as not set: a schema keeps them out, an overrides file may not. */
export function preferences(values: { readonly [name: string]: unknown }): IPreferences {
  const text = (name: string) => (typeof values[name] === 'string' ? (values[name] as string) : '');
  const flag = (name: 'local' | 'notifications' | 'statusBar') =>
    typeof values[name] === 'boolean' ? (values[name] as boolean) : DEFAULTS[name];
  return {
    context: text('context'),
    namespace: text('namespace'),
    local: flag('local'),
    refresh: typeof values.refresh === 'number' && values.refresh > 0 ? values.refresh : DEFAULTS.refresh,
    notifications: flag('notifications'),
    statusBar: flag('statusBar')
  };
}

/** Where to look: at the cluster of the session in front, else of the only sessions there are, else as settings say. */
export function scopeOf(wanted: IPreferences, front: ISession | null, sessions: readonly ISession[]): IScope {
  if (front) {
    return front.scope;
  }
  if (wanted.context || wanted.local) {
    return { context: wanted.local ? '' : wanted.context, namespace: wanted.namespace, session: '', local: wanted.local };
  }
  const youngest = sessions[sessions.length - 1];
  return youngest?.scope ?? { context: '', namespace: wanted.namespace, session: '', local: false };
}
