import { Model } from '../src/models/model';
import { INotifier, IToast, Toasts } from '../src/models/toasts';
import { english } from '../src/models/trans';
import { EventKind, IEvent } from '../src/models/sessionrows';
import { session } from './rows';

/** The open notifications, as a user sees them. */
class Shown implements INotifier {
  readonly open = new Map<string, IToast>();
  emitted = 0;

  emit(toast: IToast): string {
    const id = String(++this.emitted);
    this.open.set(id, toast);
    return id;
  }
  update(id: string, toast: IToast): boolean {
    return this.open.has(id) && !!this.open.set(id, toast);
  }
  dismiss(id: string): void {
    this.open.delete(id);
  }
  get texts(): string[] {
    return [...this.open.values()].map(toast => `${toast.type}: ${toast.text}`);
  }
}

function start() {
  const model = new Model('1');
  const shown = new Shown();
  const toasts = new Toasts(model, shown, english);
  const sessions = [session({ id: 'a', notebook: 'x/one.ipynb' }), session({ id: 'b', notebook: 'two.ipynb' })];
  model.apply({ type: 'sessions', sessions, ended: [] });
  const happen = (id: string, kind: EventKind, message: string, data: IEvent['data'] = {}) =>
    model.apply({
      type: 'events',
      session: id,
      reset: false,
      news: true,
      events: [{ kind, message, at: 0, tone: 'none', data }]
    });
  return { model, shown, toasts, happen, sessions };
}

describe('Toasts', () => {
  it('show one notification for a slice that flaps, first as a warning, then as a success', () => {
    const { shown, happen } = start();
    happen('a', 'slice-down', 'Slice 1 is down.', { slice: 0 });
    expect(shown.texts).toEqual(['warning: one.ipynb: Slice 1 is down.']);
    expect([...shown.open.values()][0].autoClose).toBe(false);
    happen('a', 'slice-healed', 'Slice 1 is placed again.', { slice: 0 });
    expect(shown.texts).toEqual(['success: one.ipynb: Slice 1 is placed again.']);
    expect([...shown.open.values()][0].autoClose).toBeGreaterThan(0);
    happen('a', 'slice-down', 'Slice 1 is down.', { slice: 0 });
    expect(shown.texts).toEqual(['warning: one.ipynb: Slice 1 is down.']);
    expect(shown.emitted).toBe(1);
  });

  it('show one notification for several slices until all have recovered', () => {
    const { shown, happen } = start();
    for (const number of [0, 1, 2]) {
      happen('a', 'slice-down', `Slice ${number} is down.`, { slice: number });
    }
    expect(shown.texts).toEqual(['warning: one.ipynb: 3 slices are down.']);
    happen('a', 'slice-healed', 'Slice 0 is placed again.', { slice: 0 });
    happen('a', 'slice-healed', 'Slice 2 is placed again.', { slice: 2 });
    expect(shown.texts).toEqual(['warning: one.ipynb: Slice 1 is down.']);
  });

  it('keep sessions apart', () => {
    const { shown, happen } = start();
    happen('a', 'slice-down', 'Slice 0 is down.', { slice: 0 });
    happen('b', 'slice-down', 'Slice 1 is down.', { slice: 0 });
    expect(shown.texts).toHaveLength(2);
  });

  it('offer to reconnect only while the proxy is lost', () => {
    const { shown, happen } = start();
    happen('a', 'slice-down', 'Slice 0 is down.', { slice: 0 });
    happen('a', 'proxy-lost', 'The proxy is gone.');
    happen('a', 'state', 'Lost.', { state: 'lost' });
    expect(shown.texts).toEqual(['error: one.ipynb: The proxy is gone.']);
    expect([...shown.open.values()][0].action).toBe('reconnect');
    happen('a', 'state', 'Reconnecting.', { state: 'starting' });
    expect(shown.texts).toEqual([]);
  });

  it('close when their session ends', () => {
    const { model, shown, happen, sessions } = start();
    happen('a', 'proxy-lost', 'The proxy is gone.');
    happen('b', 'slice-down', 'Slice 0 is down.', { slice: 0 });
    happen('b', 'state', 'Disconnecting.', { state: 'closing' });
    expect(shown.texts).toHaveLength(1);
    model.apply({ type: 'sessions', sessions: sessions.slice(1), ended: sessions.slice(0, 1) });
    expect(shown.texts).toEqual([]);
  });

  it('reopen after the user closed them for a new failure, not for a recovery', () => {
    const { shown, happen } = start();
    happen('a', 'slice-down', 'Slice 0 is down.', { slice: 0 });
    shown.open.clear();
    happen('a', 'slice-healed', 'Slice 0 is placed again.', { slice: 0 });
    expect(shown.texts).toEqual([]);
    happen('a', 'slice-down', 'Slice 0 is down.', { slice: 0 });
    expect(shown.texts).toHaveLength(1);
  });

  it('are never shown if the user has turned them off', () => {
    const { shown, toasts, happen } = start();
    toasts.wanted = false;
    happen('a', 'slice-down', 'Slice 0 is down.', { slice: 0 });
    happen('a', 'stage', 'Looking.');
    expect(shown.texts).toEqual([]);
  });

  it('announce the end of a wait for slices, and no other connection', () => {
    const { shown, happen } = start();
    happen('a', 'state', 'Connected.', { state: 'connected' });
    expect(shown.texts).toEqual([]);
    happen('a', 'state', 'All slices are taken.', { state: 'waiting' });
    happen('a', 'state', 'Connected.', { state: 'connected' });
    expect(shown.texts).toEqual(['success: one.ipynb is connected: the slices it waited for became free.']);
    happen('a', 'slice-down', 'Slice 1 is down.', { slice: 0 });
    happen('a', 'slice-healed', 'Slice 1 is placed again.', { slice: 0 });
    happen('a', 'state', 'All slices are up again.', { state: 'connected' });
    expect(shown.emitted).toBe(2);
  });

  it('announce nothing for a wait that was given up', () => {
    const { shown, happen } = start();
    happen('a', 'state', 'All slices are taken.', { state: 'waiting' });
    happen('a', 'state', 'Disconnecting.', { state: 'closing' });
    happen('a', 'state', 'Connected.', { state: 'connected' });
    expect(shown.texts).toEqual([]);
  });

  it('close the news of a connection once it has been seen, or is over', () => {
    const { model, shown, happen } = start();
    const connect = (id: string) => {
      happen(id, 'state', 'Waiting.', { state: 'waiting' });
      happen(id, 'state', 'Connected.', { state: 'connected' });
    };
    connect('a');
    connect('b');
    expect(shown.texts).toHaveLength(2);
    happen('a', 'state', 'Closing.', { state: 'closing' });
    expect(shown.texts).toEqual(['success: two.ipynb is connected: the slices it waited for became free.']);
    model.setFront({ path: 'two.ipynb', kernelId: '' });
    expect(shown.texts).toEqual([]);
    // Who looks at it needs no notification for long.
    connect('b');
    expect([...shown.open.values()][0].autoClose).toBeGreaterThan(0);
  });
});
