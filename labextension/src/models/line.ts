/** The line that connects: what the dialog does is what this line does, so that a notebook stays reproducible. */

import { IScope, IService } from './wire';

/** What a person chose in the dialog. */
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
}

const LOAD = '%load_ext pathways_jupyter';

export function connectLine(choice: IChoice): string {
  const words = ['%pathways connect'];
  const option = (name: string, value: string) => value && words.push(`--${name} ${quoted(value)}`);
  if (choice.local) {
    words.push('--local');
  } else {
    option('context', choice.context);
  }
  option('namespace', choice.namespace);
  option('service', choice.service);
  option('tpu', choice.instanceType && `${choice.instanceType}=${choice.count}`);
  option('profile', choice.profile);
  if (choice.wait) {
    words.push('--wait');
  }
  return words.join(' ');
}

/** A whole cell: it works in a kernel that was just started, too. */
export function connectCell(choice: IChoice): string {
  return `${LOAD}\n${connectLine(choice)}`;
}

/** What keeps a choice from being a line; empty when nothing does. */
export function missing(choice: IChoice): 'type' | 'count' | '' {
  if (!choice.instanceType && !choice.profile && !choice.local) {
    return 'type';
  }
  return choice.instanceType && !(Number.isInteger(choice.count) && choice.count > 0) ? 'count' : '';
}

/** What a person most likely wants of a cluster: all that is free of its first service that has some. */
export function suggestion(scope: IScope, services: readonly IService[]): IChoice | null {
  const service = services.find(each => each.capacity.some(capacity => capacity.free > 0));
  const capacity = service?.capacity.find(each => each.free > 0);
  // No line of the dialog can name a cluster that only a session knows.
  if (!service || !capacity || scope.session || !(scope.local || scope.context)) {
    return null;
  }
  return {
    local: scope.local,
    context: scope.context,
    namespace: scope.namespace,
    service: services.length > 1 ? service.name : '',
    instanceType: capacity.instance_type,
    count: capacity.free,
    profile: '',
    wait: false
  };
}

function quoted(value: string): string {
  return /^[\w.:=,/@+-]+$/.test(value) ? value : `"${value.replace(/(["\\])/g, '\\$1')}"`;
}
