import { History, KEPT_SECONDS, MOMENTS_KEPT } from '../src/models/history';
import { Model } from '../src/models/model';
import { Health } from '../src/models/wire';
import { numbered, SCOPE, session, tables, watch } from './rows';

const put = (health: Health, number = 0) => tables({ put: { slices: [numbered(number, { health })] } });

function start() {
  const time = { now: 10_000 };
  const model = new Model('1');
  model.apply({ type: 'hello', version: '1' });
  model.setScope(SCOPE);
  const history = new History(model, () => time.now);
  model.apply(tables({ reset: true, put: { slices: [numbered(0)] } }));
  model.apply(watch('live'));
  const at = (seconds: number) => history.at(seconds)?.slices.map(slice => slice.health) ?? null;
  return { time, model, history, at };
}

describe('History', () => {
  it('knows the slices as they were', () => {
    const { time, model, at } = start();
    time.now = 10_010;
    model.apply(put('down'));
    time.now = 10_020;
    model.apply(put('ready'));
    expect([at(9_999), at(10_000), at(10_009), at(10_010), at(10_019.5), at(10_020), at(11_000)]).toEqual([
      null,
      ['ready'],
      ['ready'],
      ['down'],
      ['down'],
      ['ready'],
      ['ready']
    ]);
  });

  it('remembers nothing twice', () => {
    const { time, model, history } = start();
    time.now = 10_010;
    model.apply(tables({ put: { jobs: [] } }));
    model.apply(watch('live', { as_of: 2 }));
    expect(history.moments).toHaveLength(1);
  });

  it('has something to replay when a slice or its holder has changed, not when the page looked away', () => {
    const { time, model, history } = start();
    model.setScope(null);
    time.now = 10_010;
    model.setScope(SCOPE);
    model.apply(tables({ reset: true, put: { slices: [numbered(0)] } }));
    model.apply(watch('live'));
    model.apply({ type: 'sessions', sessions: [session({ id: 'a' })], ended: [] });
    expect(history.moments.length).toBeGreaterThan(1);
    expect(history.hasChanged).toBe(false);
    model.apply(put('down'));
    expect(history.hasChanged).toBe(true);
  });

  it('knows the sessions of that time', () => {
    const { time, model, history } = start();
    time.now = 10_010;
    model.apply({ type: 'sessions', sessions: [session({ id: 'a' })], ended: [] });
    expect(history.at(10_005)?.sessions).toEqual([]);
    expect(history.at(10_015)?.sessions.map(each => each.id)).toEqual(['a']);
  });

  it('says when the page was not watching', () => {
    const { time, model, history } = start();
    time.now = 10_010;
    model.setScope(null);
    time.now = 10_040;
    model.apply(watch('live'));
    const seen = (seconds: number) => history.at(seconds)?.seen;
    expect([seen(10_005), seen(10_010), seen(10_039), seen(10_040)]).toEqual([true, false, false, true]);
    expect(history.at(10_030)?.slices).toHaveLength(1);
    time.now = 10_050;
    model.setLink({ state: 'broken' });
    expect([seen(10_045), seen(10_055)]).toEqual([true, false]);
  });

  it('has watched until the cluster was last known, not until its silence was noticed', () => {
    const { time, model, history } = start();
    time.now = 10_010;
    model.apply(watch('lost', { as_of: 10_002 }));
    const seen = (seconds: number) => history.at(seconds)?.seen;
    expect([seen(10_001), seen(10_002)]).toEqual([true, false]);
    expect(model.staleSince).toBe(10_002);
    // A clock of the server that is behind changes nothing before that.
    time.now = 10_020;
    model.apply(watch('live'));
    time.now = 10_030;
    model.apply(watch('lost', { as_of: 5 }));
    expect([seen(10_019), seen(10_020)]).toEqual([false, false]);
    expect(history.moments.map(each => each.at)).toEqual([10_000, 10_002, 10_020, 10_020]);
  });

  it('forgets another cluster', () => {
    const { time, model, history, at } = start();
    time.now = 10_010;
    model.apply(tables({ identity: 'elsewhere', reset: true, put: { slices: [numbered(1, { health: 'down' })] } }));
    expect(at(10_005)).toBeNull();
    expect(history.moments).toHaveLength(1);
    expect(at(10_010)).toEqual(['down']);
  });

  it('keeps an hour, and the state in which it began', () => {
    const { time, model, history, at } = start();
    time.now = 10_100;
    model.apply(put('down'));
    time.now = 10_200;
    model.apply(put('ready'));
    time.now = 10_150 + KEPT_SECONDS;
    expect(history.moments).toHaveLength(2);
    expect(at(10_150)).toEqual(['down']);
    time.now = 20_000;
    expect(history.moments).toHaveLength(1);
    expect(at(time.now)).toEqual(['ready']);
  });

  it('is bounded, and exact for what is young', () => {
    const { time, model, history, at } = start();
    for (let change = 0; change < 3 * MOMENTS_KEPT; change++) {
      time.now += 1;
      if (change % 10 === 5) {
        model.setLink({ state: 'broken' });
        model.setLink({ state: 'open' });
        model.apply(watch('live'));
      }
      model.apply(put(change % 2 ? 'down' : 'ready'));
    }
    expect(history.moments.length).toBeLessThanOrEqual(MOMENTS_KEPT);
    expect([at(time.now), at(time.now - 1), at(time.now - 2)]).toEqual([['down'], ['ready'], ['down']]);
    expect(history.moments[0].at).toBeLessThan(time.now - 2 * MOMENTS_KEPT);
    const times = history.moments.map(moment => moment.at);
    expect(times).toEqual([...times].sort((one, other) => one - other));
  });
});
