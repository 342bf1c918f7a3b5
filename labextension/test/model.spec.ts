import { Model } from '../src/models/model';
import { IEvent, IScope } from '../src/models/wire';
import { session, slice } from './rows';

const SCOPE: IScope = { context: 'c', namespace: 'n', session: '', local: false };
const event = (message: string): IEvent => ({ kind: 'slice-down', message, at: 1, data: {} });

function model(): Model {
  const made = new Model('1.0.0');
  made.setScope(SCOPE);
  return made;
}

describe('Model', () => {
  it('finds the session of the kernel in front', () => {
    const made = model();
    made.apply({ type: 'sessions', sessions: [session({ id: 'a', kernel_id: 'k1' }), session({ id: 'b', kernel_id: 'k2' })], ended: [] });
    made.setFront({ path: 'x.ipynb', kernelId: 'k1' });
    expect(made.session?.id).toBe('a');
  });

  it('prefers the youngest session of a kernel that has two', () => {
    const made = model();
    made.apply({ type: 'sessions', sessions: [session({ id: 'a', kernel_id: 'k' }), session({ id: 'b', kernel_id: 'k' })], ended: [] });
    made.setFront({ path: 'x.ipynb', kernelId: 'k' });
    expect(made.session?.id).toBe('b');
  });

  it('does not take the session of an earlier kernel of the same notebook for its own', () => {
    const made = model();
    made.apply({ type: 'sessions', sessions: [session({ id: 'a', kernel_id: 'old', notebook: 'x.ipynb' })], ended: [] });
    made.setFront({ path: 'x.ipynb', kernelId: 'new' });
    expect(made.session).toBeNull();
  });

  it('tells of news once, and of history not at all', () => {
    const made = model();
    const told: string[] = [];
    made.happened.connect((_, { event }) => void told.push(event.message));
    made.apply({ type: 'sessions', sessions: [session({ id: 'a' })], ended: [] });
    made.apply({ type: 'events', session: 'a', reset: true, news: false, events: [event('before')] });
    made.apply({ type: 'events', session: 'a', reset: false, news: true, events: [event('now')] });
    expect(told).toEqual(['now']);
    expect(made.events('a').map(each => each.message)).toEqual(['before', 'now']);
  });

  it('forgets the events of a session that is gone', () => {
    const made = model();
    made.apply({ type: 'sessions', sessions: [session({ id: 'a' })], ended: [] });
    made.apply({ type: 'events', session: 'a', reset: true, news: false, events: [event('x')] });
    made.apply({ type: 'sessions', sessions: [], ended: [] });
    expect(made.events('a')).toEqual([]);
  });

  it('says when server and page differ', () => {
    const made = model();
    made.apply({ type: 'hello', version: '2.0.0', user: 'u' });
    expect(made.link).toEqual({ state: 'differs', server: '2.0.0', page: '1.0.0' });
    made.apply({ type: 'hello', version: '1.0.0', user: 'u' });
    expect(made.link).toEqual({ state: 'open' });
  });

  it('ignores the tables of a cluster that is no longer looked at', () => {
    const made = model();
    const other = { ...SCOPE, context: 'other' };
    made.apply({ type: 'tables', identity: 'i', heard: 1, scope: other, reset: true, put: { slices: [slice({ id: 's/0' })] }, drop: {} });
    expect(made.cluster?.rows('slices')).toEqual([]);
  });

  it('calls a session by what its notebook is called now', () => {
    const made = model();
    const told: string[] = [];
    made.changed.connect((_, facet) => void told.push(facet));
    made.apply({ type: 'sessions', sessions: [session({ id: 'a', kernel_id: 'k', notebook: 'old.ipynb' })], ended: [] });
    made.setNotebooks(new Map([['k', 'new.ipynb']]));
    made.setNotebooks(new Map([['k', 'new.ipynb']]));
    expect(made.sessions[0].notebook).toBe('new.ipynb');
    expect(told).toEqual(['sessions', 'sessions']);
    made.apply({ type: 'sessions', sessions: [session({ id: 'a', kernel_id: 'k', notebook: 'old.ipynb', state: 'lost' })], ended: [] });
    expect(made.sessions[0]).toMatchObject({ notebook: 'new.ipynb', state: 'lost' });
  });

  it('tells of a cluster no more often than it is asked to, and forgets nothing', () => {
    jest.useFakeTimers();
    try {
      const made = model();
      made.refresh = 2;
      let told = 0;
      made.changed.connect(() => void told++);
      const put = (health: 'ready' | 'down') =>
        made.apply({ type: 'tables', identity: 'i', heard: 1, scope: SCOPE, reset: false, put: { slices: [slice({ health })] }, drop: {} });
      put('ready');
      put('down');
      put('ready');
      put('down');
      expect(told).toBe(1);
      jest.advanceTimersByTime(2000);
      expect(told).toBe(2);
      expect(made.cluster!.rows('slices')[0].health).toBe('down');
      jest.advanceTimersByTime(10_000);
      expect(told).toBe(2);
    } finally {
      jest.useRealTimers();
    }
  });
});
