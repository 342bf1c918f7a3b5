/** Rows as the server sends them, with what a test does not care about filled in. */
import { IHost, ISession, ISlice } from '../src/models/wire';

export function host(some: Partial<IHost> = {}): IHost {
  return { pod: 'p', node: 'n', health: 'ready', chips: 4, reason: '', ...some };
}

export function slice(some: Partial<ISlice> = {}): ISlice {
  return {
    id: 'default/svc/0',
    service: 'svc',
    number: 0,
    instance_type: 'tpuv6e:2x2',
    health: 'ready',
    hosts: [host()],
    holder: null,
    ...some
  };
}

export function session(some: Partial<ISession> = {}): ISession {
  return {
    id: 's',
    state: 'connected',
    state_since: 0,
    slices: [],
    alive: true,
    kernel_id: '',
    notebook: '',
    user: 'u',
    namespace: 'default',
    service: 'svc:29001',
    instances: { 'tpuv6e:2x2': 2 },
    devices: 8,
    job: 'j',
    pod: 'p',
    created: 0,
    scope: { context: 'c', namespace: 'default', session: '', local: false },
    ...some
  };
}
