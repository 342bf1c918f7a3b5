import { DrawnNotifier, IOpenNotifier } from '../src/models/drawnnotifier';
import { IToast } from '../src/models/toasts';
import { session } from './rows';

const DRAWN_MILLISECONDS = 5000;

const toast = (text: string): IToast => ({ type: 'warning', text, action: 'show', autoClose: false });

/** JupyterLab's notifications: what is shown follows only the changes after the notification was drawn. */
class Lab implements IOpenNotifier {
  readonly shown = new Map<string, string>();
  readonly open = new Set<string>();
  emit(made: IToast): string {
    const id = `n${this.open.size}`;
    this.open.add(id);
    this._drawn.set(
      id,
      new Promise(done =>
        setTimeout(() => {
          this.shown.set(id, made.text);
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
  update(id: string, made: IToast): boolean {
    if (this.shown.has(id)) {
      this.shown.set(id, made.text);
    }
    return this.open.has(id);
  }
  dismiss(id: string): void {
    this.shown.delete(id);
    this.open.delete(id);
  }
  private readonly _drawn = new Map<string, Promise<void>>();
}

describe('DrawnNotifier', () => {
  beforeEach(() => jest.useFakeTimers());
  afterEach(() => jest.useRealTimers());

  it('shows a change that comes before the notification is drawn', async () => {
    const lab = new Lab();
    const notifier = new DrawnNotifier(lab);
    const id = notifier.emit(toast('down'), session({}));
    expect(notifier.update(id, toast('recovered'), session({}))).toBe(true);
    await jest.advanceTimersByTimeAsync(DRAWN_MILLISECONDS);
    expect([...lab.shown.values()]).toEqual(['recovered']);
  });

  it('closes a notification that is dismissed before it is drawn', async () => {
    const lab = new Lab();
    const notifier = new DrawnNotifier(lab);
    notifier.dismiss(notifier.emit(toast('down'), session({})));
    await jest.advanceTimersByTimeAsync(DRAWN_MILLISECONDS);
    expect([...lab.shown.values()]).toEqual([]);
  });

  it('changes nothing that the user has closed', () => {
    const lab = new Lab();
    const notifier = new DrawnNotifier(lab);
    const id = notifier.emit(toast('down'), session({}));
    lab.dismiss(id);
    expect(notifier.update(id, toast('recovered'), session({}))).toBe(false);
  });
});
