/** The user's actions in the panel, implemented by the plugins. */
import { ISession } from '../models/wire';

export interface IActions {
  readonly connect: () => void;
  readonly disconnect: (session: ISession) => void;
  readonly reconnect: (session: ISession) => void;
  /** Open the log of a pod in a tab. */
  readonly openLog: (pod: string, title: string) => void;
  readonly sweep: () => void;
  /** Open the quickstart notebook. */
  readonly quickstart: () => void;
  /** Reconnect to the server now. */
  readonly retry: () => void;
}
