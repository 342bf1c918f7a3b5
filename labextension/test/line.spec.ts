import {
  freeSlices,
  noneFree,
  connectCell,
  connectLine,
  connects,
  EMBEDDED,
  IChoice,
  jobConnectCell,
  missing,
  placed,
  growsFor,
  suggestedSlices,
  suggestion
} from '../src/models/line';

import { service } from './rows';

const CHOICE: IChoice = {
  local: false,
  context: '',
  namespace: '',
  service: '',
  instanceType: 'tpuv6e:2x2',
  count: 2,
  profile: '',
  wait: false
};

describe('connects', () => {
  it.each([
    ['%load_ext pathways_jupyter\n%pathways connect --local', true],
    ['%pathways reconnect', true],
    ['session = pathways_jupyter.connect(local=True)', true],
    ['%pathways connect --help', false],
    ['%pathways status', false],
    ['# %pathways connect', false]
  ])('%j: %s', (source, expected) => {
    expect(connects(source)).toBe(expected);
  });
});

describe('connectLine', () => {
  it('names only what was chosen', () => {
    expect(connectLine({ ...CHOICE, local: true })).toBe('%pathways connect --local --tpu tpuv6e:2x2=2');
  });

  it('leaves the context out for the embedded cluster', () => {
    expect(connectLine({ ...CHOICE, local: true, context: 'gke' })).not.toContain('gke');
  });

  it('names no cluster to a kernel that runs in one, where --local is another', () => {
    const beside = { ...CHOICE, context: 'gke', beside: 'gke' };
    expect(connectLine(beside)).toBe('%pathways connect --tpu tpuv6e:2x2=2');
    expect(connectLine({ ...beside, context: '', local: true, namespace: 'team' })).toBe(
      '%pathways connect --namespace team --tpu tpuv6e:2x2=2'
    );
    // Nothing is chosen instead, nor added to an embedded cluster from there.
    expect(placed(beside, { contexts: [], current: '', local: true, in_cluster: false })).toEqual({});
    expect(growsFor({ ...beside, local: true }, { total: 1 })).toBe(false);
  });

  it('quotes what a shell would split', () => {
    expect(connectLine({ ...CHOICE, context: 'my cluster' })).toContain('--context "my cluster"');
  });

  it('names every choice', () => {
    const all = { ...CHOICE, context: 'c', namespace: 'n', service: 's', profile: 'p', wait: true };
    expect(connectLine(all)).toBe(
      '%pathways connect --context c --namespace n --service s --tpu tpuv6e:2x2=2 --profile p --wait'
    );
  });

  it('writes what is under "More", once for each value of a list', () => {
    const more = {
      'at-least': '1',
      'proxy-options': '--xla_one=1  --xla_two',
      'proxy-memory': ' 32G ',
      'proxy-labels': 'team=a zone=b',
      'proxy-cpu': ''
    };
    const lists = ['proxy-options', 'proxy-labels'];
    const fields = Object.keys(more).map(option => ({ option, label: '', example: '', list: lists.includes(option) }));
    expect(connectLine({ ...CHOICE, local: true, fields, more })).toBe(
      '%pathways connect --local --tpu tpuv6e:2x2=2 --at-least=1 --proxy-options=--xla_one=1 ' +
        '--proxy-options=--xla_two --proxy-memory=32G --proxy-labels=team=a --proxy-labels=zone=b'
    );
  });

  it('makes a cell that works in a fresh kernel', () => {
    expect(connectCell(CHOICE).split('\n')[0]).toBe('%load_ext pathways_jupyter');
  });
});

describe('missing', () => {
  it('requires a slice type if nothing else determines it', () => {
    expect(missing({ ...CHOICE, instanceType: '' })).toBe('type');
    expect(missing({ ...CHOICE, instanceType: '', profile: 'team' })).toBe('');
  });

  it('requires a whole number of slices', () => {
    for (const count of [0, -1, 1.5, NaN]) {
      expect(missing({ ...CHOICE, count })).toBe('count');
    }
  });
});

describe('suggestion', () => {
  const SCOPE = { context: 'gke', namespace: '', session: '', kernel: '', local: false };
  const named = (name: string, free: number) =>
    service({
      id: name,
      name,
      capacity: [{ instance_type: 'tpuv6e:2x2', chips: 4, total: 2, ready: 2, free, reclaimable: 0 }]
    });

  it('takes free slices of the only service, without naming it', () => {
    const choice = suggestion(SCOPE, [named('a', 2)])!;
    expect(connectLine(choice)).toBe('%pathways connect --context gke --tpu tpuv6e:2x2=2');
    expect(connectLine(suggestion({ ...SCOPE, context: '', local: true }, [named('a', 1)])!)).toContain('--local');
  });

  it('names no context for the cluster around the server', () => {
    expect(connectLine(suggestion({ ...SCOPE, context: '', namespace: 'n' }, [named('a', 2)])!)).toBe(
      '%pathways connect --namespace n --tpu tpuv6e:2x2=2'
    );
  });

  it('leaves most slices of a large service to others', () => {
    expect(suggestion(SCOPE, [named('a', 757)])!.count).toBe(2);
  });

  it('names one of several services that has free slices', () => {
    expect(connectLine(suggestion(SCOPE, [named('a', 0), named('b', 1)])!)).toContain('--service b --tpu tpuv6e:2x2=1');
  });

  it('suggests one slice to wait for in the dialog if none is free, and nothing without a service', () => {
    expect(suggestedSlices([named('a', 0)])).toEqual({ service: '', instanceType: 'tpuv6e:2x2', count: 1 });
    expect(suggestedSlices([])).toBeNull();
  });

  it('suggests nothing if nothing is free, or the line could not name the cluster', () => {
    expect(suggestion(SCOPE, [named('a', 0)])).toBeNull();
    expect(suggestion(SCOPE, [])).toBeNull();
    expect(suggestion({ ...SCOPE, session: 'x' }, [named('a', 1)])).toBeNull();
  });
});

describe('growsFor', () => {
  it('is true where the embedded cluster adds slices', () => {
    const local = { ...CHOICE, local: true };
    expect(growsFor(local, { total: 2 })).toBe(true);
    expect(growsFor(CHOICE, { total: 2 })).toBe(false);
    // Then it waits for slices that are taken, but those that it does not have are added.
    expect(growsFor({ ...local, wait: true }, { total: 2 })).toBe(false);
    expect(growsFor({ ...local, more: { 'at-least': '1' } }, { total: 2 })).toBe(false);
    expect(growsFor({ ...local, wait: true }, { total: 1 })).toBe(true);
  });
});

describe('placed', () => {
  const choice = (local: boolean, context: string) => ({ ...CHOICE, local, context });
  const places = { contexts: ['a', 'b'], current: 'b', local: true, in_cluster: false };
  const inPod = { contexts: [], current: '', local: false, in_cluster: true };
  const embedded = { local: true, context: '' };

  it('leaves a cluster that is there', () => {
    expect(placed(choice(false, 'a'), places)).toEqual({});
    expect(placed(choice(false, ''), inPod)).toEqual({});
    expect(placed(choice(true, ''), places)).toEqual(embedded);
  });

  it('chooses the current context, the cluster around the server, or the embedded one, which it starts', () => {
    expect(placed(choice(false, 'gone'), places)).toEqual({ context: 'b' });
    expect(placed(choice(false, 'gone'), inPod)).toEqual({ context: '' });
    expect(placed(choice(false, ''), { ...places, current: '' })).toEqual(embedded);
    expect(placed(choice(false, ''), { ...inPod, in_cluster: false })).toEqual({ ...embedded, ...EMBEDDED });
    expect(placed(choice(true, ''), inPod)).toEqual({ ...embedded, ...EMBEDDED });
  });
});

describe('jobConnectCell', () => {
  const scope = { context: '', namespace: '', session: '', kernel: '', local: false };

  it('names the cluster of the job', () => {
    expect(jobConnectCell({ ...scope, local: true, namespace: 'default' }, 'lab')).toBe(
      '%load_ext pathways_jupyter\n%pathways connect --job lab --local --namespace default'
    );
    expect(jobConnectCell({ ...scope, context: 'my cluster' }, 'lab')).toContain('lab --context "my cluster"');
  });

  it('names no context for the cluster around the server', () => {
    expect(jobConnectCell({ ...scope, namespace: 'n' }, 'lab')).toBe(
      '%load_ext pathways_jupyter\n%pathways connect --job lab --namespace n'
    );
  });

  it('is nothing for a cluster that a line cannot name', () => {
    expect(jobConnectCell({ ...scope, session: 's' }, 'lab')).toBe(null);
  });
});

describe('noneFree', () => {
  const free = (...counts: number[]) => [
    service({
      capacity: counts.map(free => ({
        instance_type: `tpuv6e:${free}`,
        chips: 4,
        total: 2,
        ready: 2,
        free,
        reclaimable: 0
      }))
    })
  ];

  it('is true only if there are slices, and none is free', () => {
    expect(noneFree(free(0, 0))).toBe(true);
    expect(noneFree(free(0, 1))).toBe(false);
    expect(noneFree(free())).toBe(false);
    expect(noneFree([])).toBe(false);
  });
});

describe('freeSlices', () => {
  const type = 'tpuv6e:2x2';
  const capacity = [{ instance_type: type, chips: 4, total: 3, ready: 3, free: 1, reclaimable: 1 }];
  const services = [service({ name: 'tpus', capacity })];
  const suspended = { service: 'tpus', instances: { [type]: 3 }, pathways_job: '' };

  it('are those that a suspended session can have now', () => {
    expect(freeSlices(suspended, services)).toEqual({ wanted: 3, free: 2 });
  });

  it.each([
    ['its service is not in view', { ...suspended, service: 'other' }],
    ['it has slices of two types', { ...suspended, instances: { [type]: 1, 'tpuv6e:2x4': 1 } }],
    ['they are a job’s', { ...suspended, pathways_job: 'train' }]
  ])('are not known where %s', (_, session) => {
    expect(freeSlices(session, services)).toBeNull();
  });
});
