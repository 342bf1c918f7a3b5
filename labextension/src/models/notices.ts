/** Which events are worth a notification, whatever the person looks at. */
import { ITrans } from './trans';
import { IEvent, ISession } from './wire';

export interface INotice {
  readonly type: 'success' | 'warning' | 'error';
  readonly text: string;
  /** What a person may do about it. */
  readonly action: 'reconnect' | 'events' | null;
}

export function notice(trans: ITrans, session: ISession, event: IEvent): INotice | null {
  const where = session.notebook ? trans.__('%1: %2', baseName(session.notebook), event.message) : event.message;
  switch (event.kind) {
    case 'slice-down':
      return { type: 'warning', text: where, action: 'events' };
    case 'slice-healed':
      return { type: 'success', text: where, action: 'events' };
    case 'proxy-lost':
      return { type: 'error', text: where, action: 'reconnect' };
    default:
      return null;
  }
}

export function baseName(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}
