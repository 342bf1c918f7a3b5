import { Cluster } from '../src/models/cluster';
import { canConnect, listed, pauseAction } from '../src/models/joblist';

import { job, SCOPE, service, tables } from './rows';

describe('listed', () => {
  it('shows the user’s jobs first, without the JobSets that belong to them, and without services', () => {
    const other = job({ id: 'JobSet/default/other', kind: 'JobSet', name: 'other', runnable: false });
    const served = job({ id: 'JobSet/default/cluster', kind: 'JobSet', name: 'cluster', runnable: false });
    const part = job({ id: 'JobSet/default/train', kind: 'JobSet', runnable: false });
    const expanded = job({ id: 'JobSet/default/plain', kind: 'JobSet', name: 'plain' });
    const cluster = new Cluster(SCOPE);
    cluster.apply(
      tables({ put: { jobs: [other, served, part, expanded, job()], services: [service({ name: 'cluster' })] } })
    );
    expect(listed(cluster).map(each => each.id)).toEqual([
      'JobSet/default/plain',
      'PathwaysJob/default/train',
      'JobSet/default/other'
    ]);
  });
});

describe('pauseAction', () => {
  it.each([
    ['Pending', 'suspend'],
    ['Running', 'suspend'],
    ['Suspended', 'resume'],
    ['Completed', null],
    ['Failed', null],
    ['Ending', null]
  ])('of a job that is %s is %s', (state, action) => {
    expect(pauseAction(job({ state }))).toBe(action);
  });

  it('is none for what is not a user’s job', () => {
    expect(pauseAction(job({ runnable: false }))).toBe(null);
  });
});

describe('canConnect', () => {
  it.each([
    ['Pending', true],
    ['Running', true],
    ['Suspended', false],
    ['Completed', false],
    ['Failed', false],
    ['Ending', false]
  ])('to a headless job that is %s: %s', (state, can) => {
    expect(canConnect(job({ state, headless: true }))).toBe(can);
    expect(canConnect(job({ state }))).toBe(false);
  });

  it('to a headless job that its queue has suspended, which starts when it is admitted', () => {
    expect(canConnect(job({ state: 'Suspended', headless: true, queue: 'team' }))).toBe(true);
  });
});
