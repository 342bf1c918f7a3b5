/** The `%pathways connect` line. The dialog inserts and runs it, so that a notebook stays reproducible. */

import { IScope } from './scope';
import { ISession } from './sessionrows';
import { ICapacity, IService } from './wire';

/** The values of the connect dialog. */
export interface IChoice {
  readonly local: boolean;
  readonly context: string;
  readonly namespace: string;
  readonly service: string;
  readonly instanceType: string;
  readonly count: number;
  readonly profile: string;
  /** Wait for taken slices. */
  readonly wait: boolean;
  /** Name of the cluster in which the notebook's kernel runs, which needs no name there; empty for one on this machine. */
  readonly beside?: string;
  /** See `IScope`. */
  readonly kernel?: string;
  /** The fields under "More", in their order; and their values, by option. */
  readonly fields?: readonly IField[];
  readonly more?: Readonly<Record<string, string>>;
}

/** A field under "More", as the server's table of settings has it. */
export interface IField {
  /** Without the dashes. */
  readonly option: string;
  readonly label: string;
  readonly example: string;
  /** Whether the option is repeated for each word of its value. */
  readonly list: boolean;
}

const LOAD = '%load_ext pathways_jupyter';

export function connectLine(choice: IChoice): string {
  return [
    '%pathways connect',
    ...placeOptions(choice),
    ...option('service', choice.service),
    ...option('tpu', choice.instanceType && `${choice.instanceType}=${choice.count}`),
    ...option('profile', choice.profile),
    ...(choice.wait ? ['--wait'] : []),
    ...(choice.fields ?? []).flatMap(field => fieldOptions(field, choice.more?.[field.option] ?? ''))
  ].join(' ');
}

function placeOptions({
  local,
  context,
  namespace,
  beside
}: Omit<IScope, 'session' | 'kernel'> & Pick<IChoice, 'beside'>): readonly string[] {
  return [...(beside ? [] : local ? ['--local'] : option('context', context)), ...option('namespace', namespace)];
}

function option(name: string, value: string): readonly string[] {
  return value ? [`--${name} ${quoted(value)}`] : [];
}

function fieldOptions(field: IField, text: string): readonly string[] {
  const values = field.list ? text.split(/\s+/) : [text.trim()];
  // With "=", because a value may begin with dashes.
  return values.filter(Boolean).map(value => `--${field.option}=${quoted(value)}`);
}

/** Return a complete cell, which also works in a fresh kernel. */
export function connectCell(choice: IChoice): string {
  return `${LOAD}\n${connectLine(choice)}`;
}

/**
 * Return a cell that attaches a notebook to a headless job; null for a cluster that only a session knows.
 *
 * @param scope Where the job is, as the server has resolved it: without a context it is the cluster around the server.
 * @param beside See `IChoice`.
 */
export function jobConnectCell(scope: IScope, job: string, beside = ''): string | null {
  const line = ['%pathways connect', `--job ${job}`, ...placeOptions({ ...scope, beside })].join(' ');
  return scope.session ? null : `${LOAD}\n${line}`;
}

/** Whether running this cell connects its notebook, or gives it a new proxy. */
export function connects(source: string): boolean {
  return /^\s*%pathways\s+(re)?connect\b(?!.*--help)|\bpathways_jupyter\.connect\(/m.test(source);
}

/** Return the field that must be filled in before the line is valid; empty if none. */
export function missing(choice: IChoice): 'type' | 'count' | '' {
  if (!choice.instanceType && !choice.profile && (!choice.local || choice.beside)) {
    return 'type';
  }
  return choice.instanceType && !(Number.isInteger(choice.count) && choice.count > 0) ? 'count' : '';
}

/** The most slices that are suggested: those of a large service are there for many people. */
const MOST_SUGGESTED = 2;

type Slices = Pick<IChoice, 'service' | 'instanceType' | 'count'>;

/** What the embedded cluster is started with. */
export const EMBEDDED: Slices = { service: '', instanceType: 'tpuv6e:2x2', count: 2 };

/** The clusters that can be chosen. */
export interface IPlaces {
  readonly contexts: readonly string[];
  readonly current: string;
  /** Whether the embedded cluster runs. */
  readonly local: boolean;
  /** Whether the server runs in a pod of a cluster, which is used without a context. */
  readonly in_cluster: boolean;
}

/**
 * Return what to change of a choice whose cluster cannot be chosen: to the current context's, else to the one around the
 * server, else to the embedded one.
 */
export function placed({ local, context, beside }: IChoice, places: IPlaces): Partial<IChoice> {
  if (beside) {
    return {};
  }
  if (!local && (places.contexts.includes(context) || (places.in_cluster && !context))) {
    return {};
  }
  if (!local && (places.current || places.in_cluster)) {
    return { context: places.current };
  }
  return { local: true, context: '', ...(places.local ? {} : EMBEDDED) };
}

/** Suggest free slices of one type, from the first service that has any; one slice to wait for if none has. */
export function suggestedSlices(services: readonly Pick<IService, 'name' | 'capacity'>[]): Slices | null {
  const service =
    services.find(each => each.capacity.some(capacity => capacity.free > 0)) ??
    services.find(each => each.capacity.length > 0);
  const capacity = service?.capacity.find(each => each.free > 0) ?? service?.capacity.at(0);
  return service && capacity
    ? {
        service: services.length > 1 ? service.name : '',
        instanceType: capacity.instance_type,
        count: Math.max(1, Math.min(capacity.free, MOST_SUGGESTED))
      }
    : null;
}

/**
 * Suggest a choice in the cluster in view; null if no slice is free, or if only a session knows the cluster.
 *
 * @param scope The cluster, as the server has resolved it: without a context it is the one around the server.
 * @param beside See `IChoice`.
 */
export function suggestion(scope: IScope, services: readonly IService[], beside = ''): IChoice | null {
  const isFree = services.some(each => each.capacity.some(capacity => capacity.free > 0));
  const slices = isFree ? suggestedSlices(services) : null;
  if (!slices || scope.session) {
    return null;
  }
  const { local, context, namespace } = scope;
  return { local, context, namespace, ...slices, profile: '', wait: false, beside };
}

/** Whether the embedded cluster adds slices for a choice, instead of waiting for those that are taken. */
export function growsFor(choice: IChoice, capacity: Pick<ICapacity, 'total'>): boolean {
  const waits = choice.wait || choice.more?.['at-least'] || choice.more?.linger;
  return choice.local && !choice.beside && (!waits || capacity.total < choice.count);
}

/** Whether there are slices, but none is free: then a notebook can connect when one becomes free. */
export function noneFree(services: readonly IService[]): boolean {
  const capacities = services.flatMap(service => service.capacity);
  return capacities.some(each => each.total > 0) && capacities.every(each => each.free + each.reclaimable === 0);
}

/**
 * Return how many slices a session without a proxy wants, and how many of them are free; null if that is not known, as
 * where a service of that name is not in view.
 */
export function freeSlices(
  { service, instances, pathways_job: job }: Pick<ISession, 'service' | 'instances' | 'pathways_job'>,
  services: readonly Pick<IService, 'name' | 'capacity'>[]
): { readonly wanted: number; readonly free: number } | null {
  const [type, ...others] = Object.keys(instances);
  if (job || others.length) {
    return null;
  }
  const wanted = instances[type];
  const capacity = services.find(each => each.name === service)?.capacity.find(each => each.instance_type === type);
  return capacity ? { wanted, free: capacity.free + capacity.reclaimable } : null;
}

function quoted(value: string): string {
  return /^[\w.:=,/@+-]+$/.test(value) ? value : `"${value.replace(/(["\\])/g, '\\$1')}"`;
}
