import { DrawnNotifications, INotifications } from '../src/models/drawnnotifications';

const DRAWN_MILLISECONDS = 5000;

/** JupyterLab's notifications: what is shown follows only the changes after the notification was drawn. */
class Lab implements INotifications<string> {
  readonly shown = new Map<string, string>();
  readonly open = new Set<string>();
  emit(text: string): string {
    const id = `n${this.open.size}`;
    this.open.add(id);
    this._drawn.set(
      id,
      new Promise(done =>
        setTimeout(() => {
          this.shown.set(id, text);
          done();
        }, DRAWN_MILLISECONDS)
      )
    );
    return id;
  }
  drawn(id: string): Promise<void> {
    return this._drawn.get(id)!;
  }
  has(id: string): boolean {
    return this.open.has(id);
  }
  update(id: string, text: string): void {
    if (this.shown.has(id)) {
      this.shown.set(id, text);
    }
  }
  dismiss(id: string): void {
    this.shown.delete(id);
    this.open.delete(id);
  }
  private readonly _drawn = new Map<string, Promise<void>>();
}

describe('DrawnNotifications', () => {
  beforeEach(() => jest.useFakeTimers());
  afterEach(() => jest.useRealTimers());

  it('show a change that comes before the notification is drawn', async () => {
    const lab = new Lab();
    const notifications = new DrawnNotifications(lab);
    const id = notifications.emit('down');
    expect(notifications.update(id, 'recovered')).toBe(true);
    await jest.advanceTimersByTimeAsync(DRAWN_MILLISECONDS);
    expect([...lab.shown.values()]).toEqual(['recovered']);
  });

  it('close one that is dismissed before it is drawn', async () => {
    const lab = new Lab();
    const notifications = new DrawnNotifications(lab);
    notifications.dismiss(notifications.emit('down'));
    await jest.advanceTimersByTimeAsync(DRAWN_MILLISECONDS);
    expect([...lab.shown.values()]).toEqual([]);
  });

  it('change nothing that the user has closed', () => {
    const lab = new Lab();
    const notifications = new DrawnNotifications(lab);
    const id = notifications.emit('down');
    lab.dismiss(id);
    expect(notifications.update(id, 'recovered')).toBe(false);
  });
});
