/** Rows and messages as the server sends them, with defaults for the fields that a test does not set. */
import { IScope } from '../src/models/scope';
import { IElasticRun, ISession } from '../src/models/sessionrows';
import { IHost, IJob, IProxy, IService, ISlice, Message, WatchState } from '../src/models/wire';

export const SCOPE: IScope = { context: 'c', namespace: 'n', session: '', kernel: '', local: false };
export const IDENTITY = 'https://here default';

export function host(some: Partial<IHost> = {}): IHost {
  return { pod: 'p', node: 'n', health: 'ready', tone: 'ok', chips: 4, reason: '', ...some };
}

export function slice(some: Partial<ISlice> = {}): ISlice {
  const { health = 'ready', holder = null } = some;
  // As Python's Service.availability says.
  const held = !holder ? 'free' : holder.reclaimable ? 'reclaimable' : 'in use';
  return {
    id: 'default/svc/0',
    service: 'svc',
    number: 0,
    instance_type: 'tpuv6e:2x2',
    health: 'ready',
    tone: 'ok',
    availability: health === 'ready' ? held : health,
    hosts: [host()],
    remarks: [],
    holder: null,
    ...some
  };
}

/** The service's slice with this number. */
export function numbered(number: number, some: Partial<ISlice> = {}): ISlice {
  return slice({ id: `default/svc/${number}`, number, ...some });
}

export function session(some: Partial<ISession> = {}): ISession {
  return {
    id: 's',
    state: 'connected',
    tone: 'ok',
    word: 'Connected',
    advice: '',
    facts: [],
    state_since: 0,
    slices: [],
    alive: true,
    silent: false,
    kernel_id: '',
    notebook: '',
    namespace: 'default',
    service: 'svc',
    pathways_job: '',
    instances: { 'tpuv6e:2x2': 2 },
    devices: 8,
    pod: 'p',
    saved: null,
    verdicts: {},
    suspend_after: 0,
    unused_since: 0,
    suspends_at: 0,
    scope: SCOPE,
    ...some
  };
}

export function job(some: Partial<IJob> = {}): IJob {
  return {
    id: 'PathwaysJob/default/train',
    kind: 'PathwaysJob',
    name: 'train',
    namespace: 'default',
    state: 'Running',
    tone: 'ok',
    message: '',
    created: 0,
    runnable: true,
    headless: false,
    queue: '',
    ...some
  };
}

/** A run on three slices that lost one after 20 of its 40 seconds. */
export function run(some: Partial<IElasticRun> = {}): IElasticRun {
  return {
    run: 'r',
    name: '',
    phase: 'training',
    tone: 'ok',
    progress: '120 of 500 steps',
    begun: 100,
    ended: null,
    slices: 2,
    total: 3,
    changes: [
      [100, 3],
      [120, 2]
    ],
    metrics: { loss: 0.125 },
    curve: { metric: 'loss', points: [] },
    goodput: 0.92,
    losses: 1,
    ...some
  };
}

export function proxy(some: Partial<IProxy> = {}): IProxy {
  return {
    id: 'default/j',
    session: 's',
    user: 'u',
    service: 'svc',
    notebook: '',
    health: 'ready',
    tone: 'ok',
    slices: [],
    since: 0,
    until: 0,
    waiting: false,
    mine: true,
    pod: 'p',
    reclaimable: null,
    ...some
  };
}

export function service(some: Partial<IService> = {}): IService {
  return {
    id: 'default/svc',
    name: 'svc',
    namespace: 'default',
    version: '',
    health: 'ready',
    tone: 'ok',
    reason: '',
    capacity: [{ instance_type: 'tpuv6e:2x2', chips: 4, total: 2, ready: 2, free: 2, reclaimable: 0 }],
    pod: '',
    ...some
  };
}

type Tables = Extract<Message, { type: 'tables' }>;

export function tables(some: Partial<Tables> = {}): Tables {
  return { type: 'tables', scope: SCOPE, identity: IDENTITY, as_of: 1, reset: false, put: {}, drop: {}, ...some };
}

type WatchMessage = Extract<Message, { type: 'watch' }>;

export function watch(state: WatchState, some: Partial<WatchMessage> = {}): WatchMessage {
  return {
    type: 'watch',
    scope: SCOPE,
    identity: IDENTITY,
    watch: state,
    problem: null,
    place: 'here',
    as_of: 1,
    ...some
  };
}
