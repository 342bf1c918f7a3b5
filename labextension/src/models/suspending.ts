/** Waits for the outcome of a suspend that a kernel was asked for: the kernel alone can save its arrays. */
import { Problem } from './problem';
import { Model } from './model';
import { ITrans } from './trans';
import { ISaved } from './sessionrows';

/** Resolve with what was saved once a session is suspended; reject if its kernel could not, or it has ended. */
export function suspended(model: Model, session: string, trans: ITrans): Promise<ISaved | null> {
  return new Promise((resolve, reject) => {
    const settle = (finish: () => void) => {
      model.happened.disconnect(happened);
      model.changed.disconnect(changed);
      finish();
    };
    const happened: Parameters<typeof model.happened.connect>[0] = (_, { session: of, event }) => {
      if (of.id === session && event.kind === 'not-suspended') {
        settle(() => reject(new Problem(event.message)));
      }
    };
    const changed = () => {
      const now = model.sessions.find(each => each.id === session);
      if (!now && model.linked) {
        settle(() => reject(new Problem(trans.__('Its session has ended.'))));
      } else if (now?.state === 'suspended') {
        settle(() => resolve(now.saved));
      } else if (now?.state === 'lost') {
        settle(() => reject(new Problem(trans.__('Its proxy is lost, and its arrays with it.'))));
      }
    };
    model.happened.connect(happened);
    model.changed.connect(changed);
    changed();
  });
}
