import { IdleGuard, idleSince, IKernel } from '../src/models/idleguard';
import { Model } from '../src/models/model';
import { english } from '../src/models/trans';
import { clock } from '../src/models/words';
import { session } from './rows';

const iso = (seconds: number) => new Date(seconds * 1000).toISOString();
const kernel = (some: Partial<IKernel> = {}): IKernel => ({
  id: 'k',
  execution_state: 'idle',
  last_activity: iso(1000),
  ...some
});
const holding = session({ id: 's', kernel_id: 'k', notebook: 'work/train.ipynb', state_since: 900 });

describe('idleSince', () => {
  it('is when the kernel last had to do with a cell', () => {
    expect(idleSince(holding, [kernel({ id: 'other' }), kernel()])).toBe(1000);
  });

  it('is when the session connected, if that was later', () => {
    expect(idleSince({ ...holding, state_since: 1200 }, [kernel()])).toBe(1200);
  });

  it.each([
    ['a cell is running', holding, [kernel({ execution_state: 'busy' })]],
    ['the kernel is not known', holding, []],
    ['the server does not report its activity', holding, [kernel({ last_activity: undefined })]],
    ['the session holds nothing yet', { ...holding, state: 'waiting' as const }, [kernel()]],
    ['its supervisor is dead', { ...holding, alive: false }, [kernel()]],
    ['it is no notebook’s', { ...holding, kernel_id: '' }, [kernel({ id: '' })]]
  ])('is unknown when %s', (_, each, kernels) => {
    expect(idleSince(each, kernels)).toBeNull();
  });
});

function start(minutes = 40) {
  const model = new Model('1');
  model.apply({ type: 'hello', version: '1', user: 'u' });
  model.apply({ type: 'sessions', sessions: [holding], ended: [] });
  const server = { kernels: [kernel()], asked: 0, fails: false };
  const open = new Map<string, string>();
  const guard = new IdleGuard(
    model,
    {
      running: () => server.kernels,
      refresh: () => {
        server.asked++;
        return server.fails ? Promise.reject(new Error('no answer')) : Promise.resolve();
      }
    },
    {
      ask: text => {
        const id = `question ${server.asked}`;
        open.set(id, text);
        return id;
      },
      dismiss: id => void open.delete(id)
    },
    english
  );
  guard.minutes = minutes;
  return { model, server, open, guard };
}

const LATE = 1000 + 40 * 60;

describe('IdleGuard', () => {
  it('asks once, and says only what is known', async () => {
    const { open, guard, server } = start();
    await guard.check(LATE - 1);
    expect([open.size, server.asked]).toEqual([0, 0]);
    await guard.check(LATE);
    await guard.check(LATE + 5);
    expect([...open.values()]).toEqual([`train.ipynb: no cell has run since ${clock(1000)}. It holds 2 slices.`]);
    expect(server.asked).toBe(1);
  });

  it('does not ask again when the user keeps the slices, until a cell has run', async () => {
    const { open, guard, server } = start();
    await guard.check(LATE);
    open.clear();
    await guard.check(LATE + 3600);
    expect(open.size).toBe(0);
    server.kernels = [kernel({ last_activity: iso(8000) })];
    await guard.check(8100);
    expect(open.size).toBe(0);
    await guard.check(8000 + 40 * 60);
    expect(open.size).toBe(1);
  });

  it('takes the question back when a cell runs, or the session ends', async () => {
    const { model, open, guard, server } = start();
    await guard.check(LATE);
    server.kernels = [kernel({ execution_state: 'busy' })];
    await guard.check(LATE + 5);
    expect(open.size).toBe(0);
    server.kernels = [kernel()];
    await guard.check(LATE + 10);
    expect(open.size).toBe(1);
    model.apply({ type: 'sessions', sessions: [], ended: [] });
    await guard.check(LATE + 15);
    expect(open.size).toBe(0);
  });

  it('says of a session that suspends by itself only that, and when', async () => {
    const { model, open, guard } = start();
    const suspends = (suspends_at: number) =>
      model.apply({ type: 'sessions', sessions: [{ ...holding, suspend_after: 7200, suspends_at }], ended: [] });
    suspends(0);
    await guard.check(LATE);
    expect(open.size).toBe(0);
    suspends(LATE + 300);
    await guard.check(LATE);
    expect([...open.values()]).toEqual([
      `train.ipynb: nothing is computed. At ${clock(LATE + 300)} its arrays are saved and its slices freed.`
    ]);
    suspends(0);
    await guard.check(LATE + 5);
    expect(open.size).toBe(0);
    // Its kernel could not.
    await guard.check(LATE + 2 * 7200);
    expect([...open.values()]).toEqual([`train.ipynb: no cell has run since ${clock(1000)}. It holds 2 slices.`]);
  });

  it('trusts the server’s present answer, not the list of some seconds ago', async () => {
    const { open, guard, server } = start();
    const check = guard.check(LATE);
    server.kernels = [kernel({ execution_state: 'busy' })];
    await check;
    expect(open.size).toBe(0);
  });

  it('asks later when the server does not answer', async () => {
    const { open, guard, server } = start();
    server.fails = true;
    await guard.check(LATE);
    expect(open.size).toBe(0);
    server.fails = false;
    await guard.check(LATE + 5);
    expect(open.size).toBe(1);
  });

  it('asks nothing when it is off, and takes the question back when it is switched off', async () => {
    const { open, guard } = start(0);
    await guard.check(LATE);
    expect(open.size).toBe(0);
    guard.minutes = 40;
    await guard.check(LATE);
    guard.minutes = 0;
    await guard.check(LATE + 5);
    expect(open.size).toBe(0);
  });
});
