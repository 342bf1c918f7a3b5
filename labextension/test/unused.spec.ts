import { Model } from '../src/models/model';
import { ISession } from '../src/models/sessionrows';
import { UnusedSessions } from '../src/models/unused';
import { session } from './rows';

const USED = session({ id: 's', notebook: 'work/train.ipynb', instances: { 'tpuv6e:2x2': 2 } });
const UNUSED = { ...USED, unused_since: 1000, advice: 'Nothing was computed.' };

function start() {
  const model = new Model('1');
  model.apply({ type: 'hello', version: '1' });
  const open = new Map<string, string>();
  let asked = 0;
  const sessions = new UnusedSessions(model, {
    ask: text => {
      const id = `question ${++asked}`;
      open.set(id, text);
      return id;
    },
    dismiss: id => void open.delete(id)
  });
  const become = (...now: ISession[]) => model.apply({ type: 'sessions', sessions: now, ended: [] });
  return { sessions, become, texts: () => [...open.values()], count: () => asked };
}

describe('UnusedSessions', () => {
  it('ask once about a session, and close the question when it is used', () => {
    const { become, texts, count } = start();
    become(USED);
    expect(texts()).toEqual([]);
    become(UNUSED);
    become({ ...UNUSED });
    expect(texts()).toEqual(['train.ipynb: Nothing was computed.']);
    become(USED);
    expect(texts()).toEqual([]);
    become({ ...USED, unused_since: 5000 });
    expect(count()).toBe(2);
  });

  it('close the question of a session that is being suspended', () => {
    const { become, texts } = start();
    become({ ...UNUSED, suspends_at: 2000 });
    expect(texts()).toHaveLength(1);
    become({ ...UNUSED, state: 'suspending', suspends_at: 0 });
    expect(texts()).toEqual([]);
  });

  it.each([
    ['its supervisor is dead', { ...UNUSED, alive: false }],
    ['its supervisor does not answer', { ...UNUSED, silent: true }],
    ['it has no slices', { ...UNUSED, state: 'suspended' as const }]
  ])('do not ask where %s', (_, each) => {
    const { become, texts } = start();
    become(each);
    expect(texts()).toEqual([]);
  });

  it('do not ask who wants no notifications', () => {
    const { become, texts, sessions } = start();
    sessions.wanted = false;
    become(UNUSED);
    expect(texts()).toEqual([]);
    sessions.wanted = true;
    expect(texts()).toHaveLength(1);
  });

  it('close the question of a session that is gone', () => {
    const { become, texts } = start();
    become(UNUSED);
    become();
    expect(texts()).toEqual([]);
  });
});
