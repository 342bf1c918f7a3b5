import { PanelView } from '../src/models/remembered';

import { settled, Store } from './store';

const FIRST = { folded: ['services'], list: false, zoom: 'compact', filter: '' };

describe('PanelView', () => {
  it('is as the user left it', async () => {
    const store = new Store();
    const before = new PanelView(store);
    await settled();
    before.set({ zoom: 'chips', filter: 'mine' });
    before.set({ list: true });
    before.toggle('services');
    before.toggle('events');
    const after = new PanelView(store);
    const seen: unknown[] = [];
    after.subscribe(() => seen.push(after.value()));
    await settled();
    expect(seen).toEqual([{ folded: ['events'], list: true, zoom: 'chips', filter: 'mine' }]);
  });

  it.each([[undefined], [null], ['text'], [[]], [{ folded: 'jobs', list: 'yes', zoom: 7, filter: null }]])(
    'starts anew from %j',
    async saved => {
      const view = new PanelView(new Store(saved));
      await settled();
      expect(view.value()).toEqual(FIRST);
    }
  );

  it('does not take back what the user did before the answer', async () => {
    const view = new PanelView(new Store({ list: true }));
    view.set({ filter: 'free' });
    await settled();
    expect(view.value()).toEqual({ ...FIRST, filter: 'free' });
  });

  it('works without a database', () => {
    const view = new PanelView(null);
    view.set({ list: true });
    expect(view.value().list).toBe(true);
  });
});
