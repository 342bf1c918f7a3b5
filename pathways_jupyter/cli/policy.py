"""``pathways-jupyter network-policy``: manifests that close the ports of proxies and resource managers."""

from __future__ import annotations

import click


@click.command(
    "network-policy",
    epilog="\b\nExamples:\n"
    "  pathways-jupyter network-policy | kubectl apply --namespace research -f -\n"
    "  pathways-jupyter network-policy --service pathways-cluster --nodes 10.128.0.0/20",
)
@click.option("--namespace", default="", metavar="NAME", help="Namespace in the manifests; default: kubectl's.")
@click.option("--service", default="", metavar="NAME", help="Also close the resource manager of this service.")
@click.option(
    "--nodes",
    multiple=True,
    metavar="CIDR",
    help="An address range of the cluster's nodes, from which a service's workers connect. May be repeated.",
)
def network_policy(namespace: str, service: str, nodes: tuple[str, ...]) -> None:
    """Print NetworkPolicies for kubectl apply, as YAML.

    They block connections from other pods to the proxies of sessions and to the resource manager of --service. Sessions
    need no open port, since they use port-forward. Does not contact a cluster.
    """
    import yaml

    from pathways_jupyter.service import networkpolicy

    if bool(service) != bool(nodes):
        raise click.UsageError("--service and --nodes go together: workers connect from the addresses of their nodes.")
    policies = [networkpolicy.for_proxies(namespace)]
    if service:
        policies.append(networkpolicy.for_resource_manager(service, nodes, namespace))
    click.echo(yaml.safe_dump_all(policies, sort_keys=False), nl=False)
