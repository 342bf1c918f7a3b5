import { Api } from '../src/models/api';
import { Problem } from '../src/models/problem';
import { Model } from '../src/models/model';
import { IBrowser, SILENCE_MILLISECONDS, Updates } from '../src/models/updates';

import { SCOPE } from './rows';

/** A socket controlled by the test. */
class Socket {
  readyState = 0;
  sent: string[] = [];
  onopen: (() => void) | null = null;
  onmessage: ((event: { data: string }) => void) | null = null;
  onclose: (() => void) | null = null;

  send(text: string): void {
    this.sent.push(text);
  }
  close(): void {
    this.readyState = 3;
  }
  beat(): void {
    this.onmessage?.({ data: '{"type":"beat"}' });
  }
  open(): void {
    this.readyState = 1;
    this.onopen?.();
  }
  drop(): void {
    this.readyState = 3;
    this.onclose?.();
  }
}

class Page implements IBrowser {
  sockets: Socket[] = [];
  isHidden = false;
  shown: (() => void)[] = [];

  openSocket(): WebSocket {
    this.sockets.push(new Socket());
    return this.last as unknown as WebSocket;
  }
  hidden(): boolean {
    return this.isHidden;
  }
  whenShown(then: () => void): () => void {
    this.shown.push(then);
    return () => void (this.shown = this.shown.filter(each => each !== then));
  }
  get last(): Socket {
    return this.sockets[this.sockets.length - 1];
  }
}

function start(version: () => Promise<{ version: string }> = () => Promise.resolve({ version: '1' })) {
  const page = new Page();
  const model = new Model('1');
  const updates = new Updates(model, { updatesUrl: 'ws://x', version } as unknown as Api, page);
  updates.start();
  return { page, model, updates };
}

describe('Updates', () => {
  beforeEach(() => jest.useFakeTimers());
  afterEach(() => jest.useRealTimers());

  it('sends the cluster in view when it connects and when that changes', () => {
    const { page, updates } = start();
    updates.look(SCOPE);
    expect(page.last.sent).toEqual([]);
    page.last.open();
    updates.look({ ...SCOPE });
    updates.look(null);
    updates.look(null);
    expect(page.last.sent.map(text => (JSON.parse(text) as { scope: unknown }).scope)).toEqual([SCOPE, null]);
  });

  it('goes on after a message that is not JSON, and says that one is missing', () => {
    const log = jest.spyOn(console, 'error').mockImplementation(() => undefined);
    const { page, model } = start();
    page.last.open();
    page.last.onmessage?.({ data: '{"type":"hello","version":"1","user":"u"}' });
    page.last.onmessage?.({ data: '{"type":"tables","put":{"proxies":[{"kept_until":Infinity}]}}' });
    expect(model.link.state).toBe('unreadable');
    expect(log).toHaveBeenCalledTimes(1);
    page.last.onmessage?.({ data: '{"type":"sessions","sessions":[],"ended":[]}' });
    expect(model.sessions).toEqual([]);
    expect(model.linked).toBe(true);
    expect(page.sockets).toHaveLength(1);
    log.mockRestore();
  });

  it('reconnects after the connection broke', async () => {
    const { page, model } = start();
    page.last.open();
    page.last.drop();
    expect(model.link.state).toBe('broken');
    await jest.advanceTimersByTimeAsync(1000);
    expect(page.sockets).toHaveLength(2);
  });

  it('waits longer before each attempt', async () => {
    const { page } = start();
    for (let time = 0; time < 4; time++) {
      page.last.drop();
      await jest.advanceTimersByTimeAsync(40_000);
    }
    const before = page.sockets.length;
    page.last.drop();
    await jest.advanceTimersByTimeAsync(1000);
    expect(page.sockets).toHaveLength(before);
  });

  it('does not try while the page is hidden', async () => {
    const { page } = start();
    page.isHidden = true;
    page.last.drop();
    await jest.advanceTimersByTimeAsync(60_000);
    expect(page.sockets).toHaveLength(1);
    page.shown.forEach(then => then());
    expect(page.sockets).toHaveLength(2);
  });

  it('opens a new connection when the present one has fallen silent', async () => {
    const { page, model } = start();
    page.last.open();
    page.last.beat();
    await jest.advanceTimersByTimeAsync(SILENCE_MILLISECONDS - 1);
    page.last.beat();
    await jest.advanceTimersByTimeAsync(SILENCE_MILLISECONDS - 1);
    expect(page.sockets).toHaveLength(1);
    await jest.advanceTimersByTimeAsync(1000);
    expect(model.link.state).toBe('broken');
    expect(page.sockets[0].readyState).toBe(3);
    expect(page.sockets).toHaveLength(2);
    // The end of the former one, which may arrive much later, changes nothing.
    page.sockets[0].drop();
    await jest.advanceTimersByTimeAsync(60_000);
    expect(page.sockets).toHaveLength(2);
  });

  it('does not wait for ever for the version over a half-open connection', async () => {
    const { page } = start(() => new Promise(() => undefined));
    page.last.drop();
    await jest.advanceTimersByTimeAsync(15_000);
    expect(page.sockets).toHaveLength(2);
  });

  it('has one socket, even if the user tries again while the page is hidden', async () => {
    const { page, updates } = start();
    page.isHidden = true;
    page.last.drop();
    await jest.advanceTimersByTimeAsync(60_000);
    updates.start();
    expect(page.sockets).toHaveLength(2);
    page.shown.forEach(then => then());
    expect(page.sockets).toHaveLength(2);
  });

  it('has one socket, even if the user tries again while the version is being requested', async () => {
    let answer: (said: { version: string }) => void = () => undefined;
    const { page, updates } = start(() => new Promise(done => (answer = done)));
    page.last.drop();
    updates.start();
    answer({ version: '1' });
    await jest.advanceTimersByTimeAsync(60_000);
    expect(page.sockets).toHaveLength(2);
  });

  it('sends nothing after it was stopped', async () => {
    const { page, updates } = start();
    page.last.open();
    updates.stop();
    expect(page.last.readyState).toBe(3);
    await jest.advanceTimersByTimeAsync(60_000);
    expect(page.sockets).toHaveLength(1);
  });

  it.each([
    [404, 'missing'],
    [403, 'refused']
  ])('gives up after a %i, until the user tries again', async (status, state) => {
    const { page, model, updates } = start(() => Promise.reject(new Problem('', '', status)));
    page.last.drop();
    await jest.advanceTimersByTimeAsync(60_000);
    expect(model.link.state).toBe(state);
    expect(page.sockets).toHaveLength(1);
    updates.start();
    expect(page.sockets).toHaveLength(2);
  });
});
