import { Folding, SliceView } from '../src/models/remembered';

import { settled, Store } from './store';

describe('Folding', () => {
  it('is as the user left it', async () => {
    const store = new Store();
    const before = new Folding(store);
    await settled();
    before.toggle('services');
    before.toggle('events');
    const after = new Folding(store);
    await settled();
    expect(after.value().folded).toEqual(['events']);
  });

  it('takes what an older version saved', async () => {
    const after = new Folding(new Store({ folded: ['jobs'], sizes: [0.5, 0.5] }));
    await settled();
    expect(after.value().folded).toEqual(['jobs']);
  });

  it.each([undefined, null, [], { folded: 'jobs' }])('takes nothing else: %j', async saved => {
    const after = new Folding(new Store(saved));
    await settled();
    expect(after.value().folded).toEqual(['services']);
  });
});

describe('SliceView', () => {
  it('is as the user left it', async () => {
    const store = new Store();
    const before = new SliceView(store);
    await settled();
    before.set({ zoom: 'chips', filter: 'mine' });
    before.set({ list: true });
    const after = new SliceView(store);
    const seen: unknown[] = [];
    after.subscribe(() => seen.push(after.value()));
    await settled();
    expect(seen).toEqual([{ list: true, zoom: 'chips', filter: 'mine' }]);
  });

  it.each([[null], ['text'], [{ list: 'yes', zoom: 7, filter: null }]])('starts anew from %j', async saved => {
    const view = new SliceView(new Store(saved));
    await settled();
    expect(view.value()).toEqual({ list: false, zoom: 'compact', filter: '' });
  });

  it('does not take back what the user did before the answer', async () => {
    const view = new SliceView(new Store({ list: true }));
    view.set({ filter: 'free' });
    await settled();
    expect(view.value()).toEqual({ list: false, zoom: 'compact', filter: 'free' });
  });

  it('works without a database', () => {
    const view = new SliceView(null);
    view.set({ list: true });
    expect(view.value().list).toBe(true);
  });
});
