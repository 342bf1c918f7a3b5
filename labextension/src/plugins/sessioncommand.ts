/** Commands about one session: the one that an argument names, else that of the notebook in front. */
import { JupyterFrontEnd } from '@jupyterlab/application';
import { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import { Model } from '../models/model';
import { ISession } from '../models/sessionrows';
import { CommandIDs } from '../tokens';

export interface ISessionCommand {
  readonly label: string;
  /** Whether it can be done with a session now. */
  readonly can: (session: ISession) => boolean;
  readonly run: (session: ISession, args: ReadonlyPartialJSONObject) => unknown;
  /** The schemas of further arguments. */
  readonly args?: ReadonlyPartialJSONObject;
}

export function addSessionCommand(app: JupyterFrontEnd, model: Model, id: CommandIDs, command: ISessionCommand): void {
  const { label, can, run, args: more } = command;
  const session = { type: 'string', description: 'Id of a session; default: the session of the notebook in front' };
  const sessionOf = (args: ReadonlyPartialJSONObject) =>
    args.session ? (model.sessions.find(each => each.id === args.session) ?? null) : model.session;
  app.commands.addCommand(id, {
    label,
    describedBy: { args: { type: 'object', properties: { session, ...more } } },
    isEnabled: args => {
      const found = sessionOf(args);
      return !!found && can(found);
    },
    execute: args => {
      const found = sessionOf(args);
      return found && run(found, args);
    }
  });
}
