import { Cluster, looksLike } from '../src/models/cluster';
import { host, slice } from './rows';

const SCOPE = { context: '', namespace: '', session: '', local: true };
const tables = (some: object) => ({ type: 'tables' as const, scope: SCOPE, identity: 'i', heard: 1, reset: false, put: {}, drop: {}, ...some });

describe('Cluster', () => {
  it('sorts slice 10 after slice 9', () => {
    const cluster = new Cluster(SCOPE);
    cluster.apply(tables({ put: { slices: [slice({ id: 's/10' }), slice({ id: 's/9' })] } }));
    expect(cluster.rows('slices').map(each => each.id)).toEqual(['s/9', 's/10']);
  });

  it('keeps rows that did not change as the same objects', () => {
    const cluster = new Cluster(SCOPE);
    cluster.apply(tables({ put: { slices: [slice({ id: 's/0' }), slice({ id: 's/1' })] } }));
    const [first] = cluster.rows('slices');
    cluster.apply(tables({ put: { slices: [slice({ id: 's/1', health: 'down' })] } }));
    expect(cluster.rows('slices')[0]).toBe(first);
    expect(cluster.rows('slices')[1].health).toBe('down');
  });

  it('keeps its order when rows change, and finds the place of a new one', () => {
    const cluster = new Cluster(SCOPE);
    const ids = () => cluster.rows('slices').map(each => each.id);
    cluster.apply(tables({ put: { slices: [slice({ id: 's/0' }), slice({ id: 's/2' })] } }));
    expect(ids()).toEqual(['s/0', 's/2']);
    cluster.apply(tables({ put: { slices: [slice({ id: 's/2', health: 'down' }), slice({ id: 's/0' })] } }));
    expect(ids()).toEqual(['s/0', 's/2']);
    expect(cluster.rows('slices')[1].health).toBe('down');
    cluster.apply(tables({ put: { slices: [slice({ id: 's/1' })] } }));
    expect(ids()).toEqual(['s/0', 's/1', 's/2']);
  });

  it('drops rows, and all of them on a reset', () => {
    const cluster = new Cluster(SCOPE);
    cluster.apply(tables({ put: { slices: [slice({ id: 's/0' }), slice({ id: 's/1' })] } }));
    cluster.apply(tables({ drop: { slices: ['s/0'] } }));
    expect(cluster.rows('slices').map(each => each.id)).toEqual(['s/1']);
    cluster.apply(tables({ reset: true }));
    expect(cluster.rows('slices')).toEqual([]);
  });
});

describe('looksLike', () => {
  it('leaves out what is not drawn, and nothing else', () => {
    expect(looksLike(slice(), slice({ hosts: [host({ pod: 'other', node: 'other' })] }))).toBe(true);
    expect(looksLike(slice(), slice({ health: 'down' }))).toBe(false);
    expect(looksLike(slice(), slice({ hosts: [host({ health: 'down' })] }))).toBe(false);
    const mine = { session: 's', user: 'u', notebook: '', since: 0, mine: true };
    expect(looksLike(slice(), slice({ holder: mine }))).toBe(false);
    expect(looksLike(slice({ holder: mine }), slice({ holder: { ...mine, session: 't' } }))).toBe(false);
  });
});
