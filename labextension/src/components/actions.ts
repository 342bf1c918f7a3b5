/** The user's actions in the panel. The plugins say how; the views only call. */
import { ISession } from '../models/wire';

export interface IActions {
  connect(): void;
  disconnect(session: ISession): void;
  reconnect(session: ISession): void;
  /** Opens the log of a pod, or of this session's proxy. */
  openLog(pod: string, title: string): void;
  sweep(): void;
  /** Opens the quickstart notebook. */
  quickstart(): void;
  /** Tries again to reach the server. */
  retry(): void;
}
