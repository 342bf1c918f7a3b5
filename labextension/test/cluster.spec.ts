import { Cluster, looksLike } from '../src/models/cluster';
import { host, SCOPE, slice, tables, watch } from './rows';

describe('Cluster', () => {
  const ids = (cluster: Cluster) => cluster.rows('slices').map(each => each.id);

  it('sorts slice 10 after slice 9', () => {
    const cluster = new Cluster(SCOPE);
    cluster.apply(tables({ put: { slices: [slice({ id: 's/10' }), slice({ id: 's/9' })] } }));
    expect(ids(cluster)).toEqual(['s/9', 's/10']);
  });

  it('keeps unchanged rows as the same objects', () => {
    const cluster = new Cluster(SCOPE);
    cluster.apply(tables({ put: { slices: [slice({ id: 's/0' }), slice({ id: 's/1' })] } }));
    const [first] = cluster.rows('slices');
    cluster.apply(tables({ put: { slices: [slice({ id: 's/1', health: 'down' })] } }));
    expect(cluster.rows('slices')[0]).toBe(first);
    expect(cluster.rows('slices')[1].health).toBe('down');
  });

  it('keeps its order when rows change, and sorts a new one in', () => {
    const cluster = new Cluster(SCOPE);
    cluster.apply(tables({ put: { slices: [slice({ id: 's/0' }), slice({ id: 's/2' })] } }));
    expect(ids(cluster)).toEqual(['s/0', 's/2']);
    cluster.apply(tables({ put: { slices: [slice({ id: 's/2', health: 'down' }), slice({ id: 's/0' })] } }));
    expect(ids(cluster)).toEqual(['s/0', 's/2']);
    expect(cluster.rows('slices')[1].health).toBe('down');
    cluster.apply(tables({ put: { slices: [slice({ id: 's/1' })] } }));
    expect(ids(cluster)).toEqual(['s/0', 's/1', 's/2']);
  });

  it('drops rows, and all of them on a reset', () => {
    const cluster = new Cluster(SCOPE);
    cluster.apply(tables({ put: { slices: [slice({ id: 's/0' }), slice({ id: 's/1' })] } }));
    cluster.apply(tables({ drop: { slices: ['s/0'] } }));
    expect(ids(cluster)).toEqual(['s/1']);
    cluster.apply(tables({ reset: true }));
    expect(ids(cluster)).toEqual([]);
  });

  it('never shows the rows of one cluster under the name of another', () => {
    const cluster = new Cluster(SCOPE);
    cluster.setWatch(watch('live', { place: 'one' }));
    cluster.apply(tables({ reset: true, put: { slices: [slice()] } }));
    cluster.setWatch(watch('failed', { identity: 'https://other default', place: 'two', as_of: 0 }));
    expect(cluster.place).toBe('two');
    expect(ids(cluster)).toEqual([]);
    expect(cluster.staleSince).toBeNull();
  });

  it('has no rows if its scope resolves to no cluster', () => {
    const cluster = new Cluster(SCOPE);
    cluster.setWatch(watch('live'));
    cluster.apply(tables({ reset: true, put: { slices: [slice()] } }));
    cluster.setWatch(watch('failed', { identity: '', place: '', as_of: 0 }));
    expect(ids(cluster)).toEqual([]);
  });

  it('keeps the rows of a cluster that does not answer, with their age', () => {
    const cluster = new Cluster(SCOPE);
    cluster.setWatch(watch('live', { as_of: 5 }));
    cluster.apply(tables({ reset: true, put: { slices: [slice()] } }));
    expect(cluster.staleSince).toBeNull();
    cluster.setWatch(watch('lost', { as_of: 7 }));
    expect(ids(cluster)).toEqual(['default/svc/0']);
    expect(cluster.staleSince).toBe(7);
  });

  it('keeps its rows under another scope unless that resolves to another cluster', () => {
    const cluster = new Cluster(SCOPE);
    cluster.setWatch(watch('live'));
    cluster.apply(tables({ reset: true, put: { slices: [slice()] } }));
    cluster.moveTo({ ...SCOPE, context: '' });
    expect(ids(cluster)).toEqual(['default/svc/0']);
    expect(cluster.watch).toBe('loading');
    expect(cluster.staleSince).not.toBeNull();
    cluster.setWatch(watch('live', { as_of: 9 }));
    expect(ids(cluster)).toEqual(['default/svc/0']);
    cluster.moveTo(SCOPE);
    cluster.setName({ type: 'named', scope: SCOPE, named: SCOPE, identity: 'https://other default' });
    expect(ids(cluster)).toEqual([]);
  });
});

describe('looksLike', () => {
  it('ignores exactly the fields that are not drawn', () => {
    expect(looksLike(slice(), slice({ hosts: [host({ pod: 'other', node: 'other' })] }))).toBe(true);
    expect(looksLike(slice(), slice({ health: 'down' }))).toBe(false);
    expect(looksLike(slice(), slice({ hosts: [host({ health: 'down' })] }))).toBe(false);
  });
});
