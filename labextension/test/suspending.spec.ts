import { Model } from '../src/models/model';
import { IEvent, ISession } from '../src/models/sessionrows';
import { suspended } from '../src/models/suspending';
import { english } from '../src/models/trans';
import { session } from './rows';

const SAVED = { count: 2, bytes: 64, place: 'gs://b/suspended-s', at: 5 };

function start() {
  const model = new Model('1');
  const become = (...sessions: ISession[]) => model.apply({ type: 'sessions', sessions, ended: [] });
  model.apply({ type: 'hello', version: '1' });
  become(session({ id: 's' }));
  return { model, become, outcome: suspended(model, 's', english) };
}

describe('A suspend that was asked for', () => {
  it('ends with what was saved', async () => {
    const { become, outcome } = start();
    become(session({ id: 's', state: 'suspending' }));
    become(session({ id: 's', state: 'suspended', saved: SAVED }));
    expect(await outcome).toEqual(SAVED);
  });

  it('fails with what the kernel says', async () => {
    const { model, outcome } = start();
    const event: IEvent = {
      kind: 'not-suspended',
      message: 'Not suspended. 1 array cannot be kept.',
      at: 0,
      tone: 'warn',
      data: {}
    };
    model.apply({ type: 'events', session: 's', reset: false, news: true, events: [event] });
    await expect(outcome).rejects.toThrow('Not suspended. 1 array cannot be kept.');
  });

  it('fails where the session ends or is lost', async () => {
    const ended = start();
    ended.become();
    await expect(ended.outcome).rejects.toThrow('Its session has ended.');
    const lost = start();
    lost.become(session({ id: 's', state: 'lost' }));
    await expect(lost.outcome).rejects.toThrow('Its proxy is lost');
  });
});
