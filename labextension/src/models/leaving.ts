/** The one question about a session that goes on to hold slices, without a limit, when the page is closed. */
import { Model } from './model';
import { ISession } from './sessionrows';
import { acts, isConnected, sessionName, slicesOf } from './sessions';
import { ITrans } from './trans';

/** Remembers for as long as the tab is open, also when it is loaded again: the browser's session storage. */
export type IRemembered = Pick<Storage, 'getItem' | 'setItem'>;

/** What to say when the page is closed now, and of which session; null where there is nothing, or it was said. */
export function leaving(
  model: Model,
  said: IRemembered,
  trans: ITrans
): { readonly text: string; readonly session: ISession } | null {
  const key = ({ id }: ISession) => `pathways-jupyter:leaving:${id}`;
  const session = model.sessions.find(each => holdsWithoutLimit(each) && !said.getItem(key(each)));
  if (!model.linked || !session) {
    return null;
  }
  said.setItem(key(session), 'said');
  const text = trans._n(
    '%2 holds %1 slice also while this window is closed, without a limit. Suspend saves its arrays and frees it.',
    '%2 holds %1 slices also while this window is closed, without a limit. Suspend saves its arrays and frees them.',
    slicesOf(session),
    sessionName(session)
  );
  return { text, session };
}

function holdsWithoutLimit(session: ISession): boolean {
  return session.alive && !session.silent && isConnected(session) && !session.suspend_after && acts(session, 'suspend');
}
