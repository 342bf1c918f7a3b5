/** Which cluster is meant. */

/** A cluster and a namespace in it. Empty strings stand for the defaults of the server's kubeconfig. */
export interface IScope {
  readonly context: string;
  readonly namespace: string;
  /** Id of a session whose cluster is meant, when no context names that cluster. */
  readonly session: string;
  /** Id of a kernel beside the chips, likewise. */
  readonly kernel: string;
  /** The embedded cluster of this machine. */
  readonly local: boolean;
}

/** Return a text that is the same for scopes that name the same place, and only for them. */
export function scopeKey({ context, namespace, session, kernel, local }: IScope): string {
  return [local ? 'local' : '', session, kernel, context, namespace].map(encodeURIComponent).join('/');
}

/** Return whether two scopes name the same place. */
export function sameScope(one: IScope | null, other: IScope | null): boolean {
  return one === other || (!!one && !!other && scopeKey(one) === scopeKey(other));
}
