import { Folding } from '../src/models/folding';

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
