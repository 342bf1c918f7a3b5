"""Commands about whole services: ``services``, and ``service deploy | show | wait | delete``.

``network-policy`` prints the manifests that close the ports of proxies and resource managers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import click

from pathways_jupyter import entry
from pathways_jupyter.cli.options import INTERRUPTED, epilog, examples, given, show_json, takes
from pathways_jupyter.cli.options import show as present
from pathways_jupyter.commands.declaration import CLUSTER, Command
from pathways_jupyter.commands.service import SERVICE_DELETE, SERVICE_DEPLOY, SERVICE_SHOW, SERVICE_WAIT, SERVICES
from pathways_jupyter.config import ConnectConfig
from pathways_jupyter.errors import ConfigError, ServiceError
from pathways_jupyter.wording import Face, worded


@click.command(epilog=epilog(SERVICES))
@takes(SERVICES)
def services(json: bool, **values: Any) -> None:
    """List the services that you may see: address, slices and who uses them, image and JAX version, age."""
    from pathways_jupyter.render import services as picture
    from pathways_jupyter.service import overview

    options = given(values)
    # The namespace of a session or a context is no wish for only that one.
    namespace = options.get("namespace", "")
    found = entry.ask(entry.where(options), lambda client, _: overview.overviews(client, namespace))
    present(picture.view(found), as_json=json)


@click.group(
    epilog=examples(
        "service deploy team --tpu tpuv6e:2x2 --slices 2 --gcs-bucket gs://my-bucket/pathways",
        "service show team",
    )
)
def service() -> None:
    """Deploy a Shared Pathways Service, follow its start, look at it, delete it."""


def _takes(about: Command) -> Callable[[Callable[..., Any]], click.Command]:
    def decorate(function: Callable[..., Any]) -> click.Command:
        name = about.name.partition(" ")[2]
        return service.command(name, short_help=about.summary, epilog=epilog(about))(takes(about)(function))

    return decorate


@_takes(SERVICE_DEPLOY)
def deploy(json: bool, **values: Any) -> None:
    """Deploy service NAME: check the cluster first, then create it, and follow its start.

    The checks: JobSet is installed, your permissions, the node pools of that type and topology, the node pool of the
    head, the bucket, and what recent events say about quota. An interrupt leaves the service as it is.
    """
    import yaml

    from pathways_jupyter.service import deploy as deploying
    from pathways_jupyter.service import deployment, rollout

    options = given(values)
    plan = entry.deployment(options)
    if options.get("dry_run"):
        plan = plan.within(entry.namespace(_place(options)))
        form = options.get("output") or ("json" if json else "yaml")
        if form not in {"yaml", "json"}:
            raise ConfigError(f"There is no output format {form!r}.", hint="Formats: yaml, json.")
        objects = deployment.manifests(plan)
        if form == "json":
            show_json({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        else:
            click.echo(yaml.safe_dump_all(objects, sort_keys=False), nl=False)
        return
    where = entry.look(_place(options))
    steps = entry.stream(
        where,
        lambda client, namespace: deploying.run(
            client,
            plan.within(namespace),
            skip_checks=bool(options.get("skip_checks")),
            follow=not options.get("no_wait"),
            seconds=entry.seconds("--timeout", options.get("timeout"), default=rollout.TIMEOUT_SECONDS),
        ),
    )
    _follow(steps, plan.spec.name)
    if json:
        _show(where, plan.spec.name, as_json=True)


@_takes(SERVICE_SHOW)
def show(json: bool, **values: Any) -> None:
    """Show service NAME: address, images, slices and who uses them, and how to connect to it."""
    options = given(values)
    _show(entry.where(_place(options)), options["name"], as_json=json)


@_takes(SERVICE_WAIT)
def wait(json: bool, **values: Any) -> None:
    """Follow the start of service NAME until all its slices are ready.

    Exit code 1 if it is not ready in time, or has ended for good.
    """
    from pathways_jupyter.service import rollout

    options = given(values)
    where, name = entry.look(_place(options)), options["name"]
    seconds = entry.seconds("--timeout", options.get("timeout"), default=rollout.TIMEOUT_SECONDS)
    _follow(
        entry.stream(where, lambda client, namespace: rollout.follow(client, namespace, name, seconds=seconds)), name
    )
    if json:
        _show(where, name, as_json=True)


@_takes(SERVICE_DELETE)
def delete(json: bool, **values: Any) -> None:
    """Delete service NAME and its NetworkPolicy; the sessions on it end. Asks first, and says who still uses it."""
    from pathways_jupyter.service import deploy as deploying

    options = given(values)
    where, name = entry.look(_place(options)), options["name"]
    found, picture, question = entry.ask(
        where, lambda client, namespace: deploying.find_to_delete(client, namespace, name)
    )
    if not options.get("yes"):
        if not sys.stdin.isatty():
            raise ServiceError(f"Not deleted: {question}", hint="Answer on a terminal, or add --yes.")
        click.confirm(question, abort=True, err=True)
    click.echo(f"Deleting {found.name} …", err=True)
    entry.ask(where, lambda client, _: deploying.remove(client, found))
    if json:
        show_json({"name": found.name, "namespace": found.namespace, "users": [str(each) for each in picture.holders]})
    else:
        click.echo(f"Service {found.name} is deleted from namespace {found.namespace}.")


def _place(options: dict[str, Any]) -> dict[str, Any]:
    """Return those of `options` that name the cluster."""
    names = {option.name for option in CLUSTER}
    return {name: value for name, value in options.items() if name in names}


def _show(where: ConnectConfig, name: str, *, as_json: bool) -> None:
    from pathways_jupyter.render import services as picture
    from pathways_jupyter.service import overview

    (found,) = entry.ask(where, lambda client, namespace: overview.overviews(client, namespace, name))
    present(picture.details(found), as_json=as_json)


def _follow(steps: Iterable[Any], name: str) -> None:
    """Print steps as they come, on standard error: standard output is for the result."""
    from pathways_jupyter.render import services as picture

    try:
        for step in steps:
            click.echo(worded(picture.line(step), Face.TERMINAL), err=True)
    except KeyboardInterrupt:
        click.echo(
            f"Interrupted. Service {name} stays if it was created: pathways-jupyter service wait {name} follows it, "
            f"pathways-jupyter service delete {name} removes it.",
            err=True,
        )
        sys.exit(INTERRUPTED)


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

    from pathways_jupyter.service import deployment, networkpolicy

    if bool(service) != bool(nodes):
        raise click.UsageError("--service and --nodes go together: workers connect from the addresses of their nodes.")
    policies = [networkpolicy.for_proxies(namespace)]
    if service:
        ranges = [deployment.address_range(each) for each in nodes]
        policies.append(networkpolicy.for_resource_manager(service, ranges, namespace))
    click.echo(yaml.safe_dump_all(policies, sort_keys=False), nl=False)
