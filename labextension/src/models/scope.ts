/** Which cluster is meant. */

/** A cluster and a namespace in it. Empty strings stand for the defaults of the server's kubeconfig. */
export interface IScope {
  readonly context: string;
  readonly namespace: string;
  /** Id of a session whose cluster is meant, when no context names that cluster. */
  readonly session: string;
  /** The embedded cluster of this machine. */
  readonly local: boolean;
}

/** Return whether two scopes name the same place. */
export function sameScope(one: IScope | null, other: IScope | null): boolean {
  return (
    one === other ||
    (!!one &&
      !!other &&
      one.local === other.local &&
      one.context === other.context &&
      one.namespace === other.namespace &&
      one.session === other.session)
  );
}
