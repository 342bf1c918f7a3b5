import { Model } from '../src/models/model';
import { scopeOf } from '../src/models/preferences';
import { IEvent, ISession } from '../src/models/sessionrows';
import { Message } from '../src/models/wire';
import { SCOPE, session, slice, tables, watch } from './rows';

const event = (message: string): IEvent => ({ kind: 'slice-down', message, at: 1, tone: 'fail', data: {} });

const sessions = (now: ISession[], ended: ISession[] = []): Message => ({ type: 'sessions', sessions: now, ended });

function model(): Model {
  const made = new Model('1.0.0');
  made.setScope(SCOPE);
  return made;
}

describe('Model', () => {
  it('finds the session of the kernel in front', () => {
    const made = model();
    made.apply(sessions([session({ id: 'a', kernel_id: 'k1' }), session({ id: 'b', kernel_id: 'k2' })]));
    made.setFront({ path: 'x.ipynb', kernelId: 'k1' });
    expect(made.session?.id).toBe('a');
  });

  it('knows where the kernel in front is, and forgets it with the kernel', () => {
    const made = model();
    const place = { kernel_id: 'k', cluster: 'gke', ready: true, message: '', note: '', failed: false, scope: SCOPE };
    made.apply({ type: 'sessions', sessions: [], ended: [], kernels: [place] });
    made.setFront({ path: 'x.ipynb', kernelId: 'k' });
    expect(made.place).toBe(place);
    expect(scopeOf({ context: 'other' }, made.session ?? made.place, [])).toBe(SCOPE);
    made.setFront({ path: 'y.ipynb', kernelId: 'here' });
    expect(made.place).toBeNull();
    made.setFront({ path: 'x.ipynb', kernelId: 'k' });
    made.apply(sessions([]));
    expect(made.place).toBeNull();
  });

  it('prefers the youngest session of a kernel that has two', () => {
    const made = model();
    made.apply(sessions([session({ id: 'a', kernel_id: 'k' }), session({ id: 'b', kernel_id: 'k' })]));
    made.setFront({ path: 'x.ipynb', kernelId: 'k' });
    expect(made.session?.id).toBe('b');
  });

  it('ignores the session of an earlier kernel of the same notebook', () => {
    const made = model();
    made.apply(sessions([session({ id: 'a', kernel_id: 'old', notebook: 'x.ipynb' })]));
    made.setFront({ path: 'x.ipynb', kernelId: 'new' });
    expect(made.session).toBeNull();
  });

  it('finds the session of a notebook whose kernel is not known yet, as after a reload', () => {
    const made = model();
    made.apply(sessions([session({ id: 'a', kernel_id: 'k', notebook: 'x.ipynb' })]));
    made.setFront({ path: 'x.ipynb', kernelId: '' });
    expect(made.session?.id).toBe('a');
    made.setFront({ path: 'y.ipynb', kernelId: '' });
    expect(made.session).toBeNull();
  });

  it('knows who holds slices, and whether a notebook is in front', () => {
    const made = model();
    made.apply(sessions([session({ id: 'a', kernel_id: 'k' })]));
    const held = (id: string) => {
      const holder = { session: id, user: 'u', notebook: '', since: 0, mine: true, reclaimable: null };
      return slice({ holder });
    };
    expect(made.holdings().hasFront).toBe(false);
    expect(made.holdings().of(held('a')).owner).toBe('mine');
    made.setFront({ path: 'x.ipynb', kernelId: 'k' });
    expect(made.holdings().hasFront).toBe(true);
    expect(made.holdings().of(held('a')).owner).toBe('this');
  });

  it('knows that a cell connects the notebook in front', () => {
    const made = model();
    let reported = 0;
    made.changed.connect(() => {
      reported++;
    });
    made.setConnecting(new Set(['x.ipynb']));
    expect(made.connecting).toBe(false);
    made.setFront({ path: 'x.ipynb', kernelId: 'k' });
    expect(made.connecting).toBe(true);
    made.setConnecting(new Set());
    expect([made.connecting, reported]).toEqual([false, 3]);
  });

  it('reports news once, and never reports history', () => {
    const made = model();
    const reported: string[] = [];
    made.happened.connect((_, { event }) => void reported.push(event.message));
    made.apply(sessions([session({ id: 'a' })]));
    made.apply({ type: 'events', session: 'a', reset: true, news: false, events: [event('before')] });
    made.apply({ type: 'events', session: 'a', reset: false, news: true, events: [event('now')] });
    expect(reported).toEqual(['now']);
    expect(made.events('a').map(each => each.message)).toEqual(['before', 'now']);
  });

  it('keeps the timeline of a session that ended, for its notebook, until that has another', () => {
    const made = model();
    const mine = session({ id: 'a', kernel_id: 'k', notebook: 'x.ipynb' });
    made.setFront({ path: 'x.ipynb', kernelId: 'k' });
    made.apply(sessions([mine]));
    made.apply({ type: 'events', session: 'a', reset: true, news: false, events: [event('x')] });
    expect(made.endedSession).toBeNull();
    made.apply(sessions([], [{ ...mine, state: 'closed' }]));
    expect(made.session).toBeNull();
    expect(made.endedSession?.id).toBe('a');
    expect(made.events('a').map(each => each.message)).toEqual(['x']);
    made.setFront({ path: 'y.ipynb', kernelId: 'other' });
    expect(made.endedSession).toBeNull();
    made.setFront({ path: 'x.ipynb', kernelId: 'restarted' });
    expect(made.endedSession?.id).toBe('a');
    made.apply(sessions([{ ...mine, id: 'b', kernel_id: 'restarted' }], [mine]));
    expect(made.endedSession).toBeNull();
    made.apply(sessions([], []));
    expect(made.events('a')).toEqual([]);
  });

  it('marks its rows as old from the server’s silence until its next answer', () => {
    const made = model();
    made.apply({ type: 'hello', version: '1.0.0' });
    made.apply(watch('live'));
    made.apply(tables({ reset: true, put: { slices: [slice()] } }));
    expect([made.live, made.staleSince]).toEqual([true, null]);
    made.setLink({ state: 'broken' });
    expect(made.live).toBe(false);
    expect(made.staleSince).not.toBeNull();
    made.apply({ type: 'hello', version: '1.0.0' });
    expect(made.live).toBe(false);
    expect(made.cluster?.rows('slices')).toHaveLength(1);
    made.apply(watch('live'));
    expect([made.live, made.staleSince]).toEqual([true, null]);
  });

  it('marks its rows as old while the page shows no cluster', () => {
    const made = model();
    made.apply({ type: 'hello', version: '1.0.0' });
    made.apply(watch('live'));
    made.setScope(null);
    expect(made.live).toBe(false);
    made.setScope(SCOPE);
    expect(made.live).toBe(false);
  });

  it('reports different versions of server and page', () => {
    const made = model();
    made.apply({ type: 'hello', version: '2.0.0' });
    expect(made.link).toEqual({ state: 'differs', server: '2.0.0', page: '1.0.0' });
    made.apply({ type: 'hello', version: '1.0.0' });
    expect(made.link).toEqual({ state: 'open' });
  });

  it('ignores the tables of a cluster that is no longer in view', () => {
    const made = model();
    const other = { ...SCOPE, context: 'other' };
    made.apply(tables({ scope: other, reset: true, put: { slices: [slice({ id: 's/0' })] } }));
    expect(made.cluster?.rows('slices')).toEqual([]);
  });

  it('follows the name of a session’s notebook', () => {
    const made = model();
    const reported: string[] = [];
    made.changed.connect((_, facet) => void reported.push(facet));
    made.apply(sessions([session({ id: 'a', kernel_id: 'k', notebook: 'old.ipynb' })]));
    made.setNotebooks(new Map([['k', 'new.ipynb']]));
    made.setNotebooks(new Map([['k', 'new.ipynb']]));
    expect(made.sessions[0].notebook).toBe('new.ipynb');
    expect(reported).toEqual(['sessions', 'sessions']);
    made.apply(sessions([session({ id: 'a', kernel_id: 'k', notebook: 'old.ipynb', state: 'lost' })]));
    expect(made.sessions[0]).toMatchObject({ notebook: 'new.ipynb', state: 'lost' });
  });

  it('reports a cluster’s changes no more often than requested, and loses none', () => {
    jest.useFakeTimers();
    try {
      const made = model();
      made.refresh = 2;
      let reported = 0;
      made.changed.connect(() => {
        reported++;
      });
      const put = (health: 'ready' | 'down') => made.apply(tables({ put: { slices: [slice({ health })] } }));
      put('ready');
      put('down');
      put('ready');
      put('down');
      expect(reported).toBe(1);
      jest.advanceTimersByTime(2000);
      expect(reported).toBe(2);
      expect(made.cluster!.rows('slices')[0].health).toBe('down');
      jest.advanceTimersByTime(10_000);
      expect(reported).toBe(2);
    } finally {
      jest.useRealTimers();
    }
  });
});
