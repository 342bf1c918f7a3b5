"""Commands about services: what there is, who uses it, how to deploy one, follow its start and delete it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from pathways_jupyter.actions import cluster
from pathways_jupyter.actions.shell import Action, CommandInterrupted, Contradiction, Shell, Values
from pathways_jupyter.base import tasks
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.sentences import Face, advice
from pathways_jupyter.base.text import parse_seconds
from pathways_jupyter.render import services as render
from pathways_jupyter.render import slices as slices_view
from pathways_jupyter.render.view import View, for_kubectl, said
from pathways_jupyter.service import deployment, names, networkpolicy, permissions, rollout, status
from pathways_jupyter.session import clusters
from pathways_jupyter.session.kernel import process


def slices(shell: Shell, values: Values) -> View:
    """Return the service's slices and their holders."""
    where, session, mine = cluster.where(values), cluster.session_of(values), process.session()
    user = names.current_user() if shell.face is Face.NOTEBOOK else ""
    # Also where the line names the cluster, which may be this session's.
    viewer = slices_view.Viewer(str(mine.id) if mine is not None else "", user)
    if session is not None and not where.service and (job := session.record.pathways_job):
        # A job's slices are no service's.
        own = clusters.ask(where, lambda client, namespace: status.fetch_job(client, namespace, job))
        return slices_view.view((own,), viewer=viewer)
    services = clusters.ask(where, lambda client, namespace: status.fetch(client, namespace, where.service))
    return slices_view.view(services, viewer=viewer)


def services(shell: Shell, values: Values) -> View:
    """Return the services that the user may see."""
    # The namespace of a session or a context is no wish for only that one.
    namespace = values.get("namespace", "")
    return render.view(clusters.ask(cluster.where(values), lambda client, _: status.overviews(client, namespace)))


def show(shell: Shell, values: Values) -> View:
    """Return one service in full."""
    return _details(cluster.where(values), values["name"])


def deploy(shell: Shell, values: Values) -> View:
    """Check the cluster, deploy a service, and follow its start.

    Raises:
      ConfigError: An option is missing or invalid.
      ServiceError: A check failed, or the service is not ready in time.
    """
    # From the metadata, because importing JAX takes seconds.
    spec = deployment.plan(values, jax=version("jax"))
    seconds = parse_seconds("--timeout", values.get("timeout", rollout.TIMEOUT_SECONDS))
    if values.get("dry_run"):
        return for_kubectl(deployment.manifests(replace(spec, namespace=_namespace(values))))
    where = cluster.where(values, others=False)
    steps = clusters.stream(
        where,
        lambda client, namespace: deployment.run(
            client,
            replace(spec, namespace=namespace),
            skip_checks=bool(values.get("skip_checks")),
            follow=not values.get("no_wait"),
            seconds=seconds,
        ),
    )
    _follow(shell, steps, spec.name)
    return _details(where, spec.name)


def wait(shell: Shell, values: Values) -> View:
    """Follow a service's start until all its slices are ready."""
    where, name = cluster.where(values, others=False), values["name"]
    seconds = parse_seconds("--timeout", values.get("timeout", rollout.TIMEOUT_SECONDS))
    steps = clusters.stream(where, lambda client, namespace: rollout.follow(client, namespace, name, seconds=seconds))
    _follow(shell, steps, name)
    return _details(where, name)


def delete(shell: Shell, values: Values) -> View:
    """Delete a service, after a question that names its users."""
    where, name = cluster.where(values, others=False), values["name"]
    service, seen, question = clusters.ask(
        where, lambda client, namespace: deployment.find_to_delete(client, namespace, name)
    )
    if not values.get("yes") and not shell.confirm(question):
        return said("Not deleted.")
    shell.say(f"Deleting {service.name} …")
    clusters.ask(where, lambda client, _: deployment.remove(client, service))
    return said(
        f"Service {service.name} is deleted from namespace {service.namespace}.",
        {"name": service.name, "namespace": service.namespace, "users": [str(each) for each in seen.holders]},
    )


def network_policy(shell: Shell, values: Values) -> View:
    """Return manifests that close the ports of proxies and services; contacts no cluster.

    Raises:
      ConfigError: An address range is none.
    """
    service, nodes, namespace = values.get("service", ""), values.get("nodes", ()), values.get("namespace", "")
    if bool(service) != bool(nodes):
        raise Contradiction("--service and --nodes go together: workers connect from the addresses of their nodes.")
    policies = [networkpolicy.for_proxies(namespace)]
    if service:
        ranges = [deployment.address_range(each) for each in nodes]
        policies.append(networkpolicy.for_resource_manager(service, ranges, namespace))
    return for_kubectl(policies)


def print_roles(shell: Shell, values: Values) -> View:
    """Return one Role, or all; contacts no cluster.

    Raises:
      ConfigError: There is no such Role.
    """
    name = values.get("name", "")
    if name and name not in permissions.BY_ROLE:
        raise ConfigError(f"There is no Role {name!r}.", hint=f"There are: {', '.join(permissions.BY_ROLE)}.")
    return for_kubectl(
        each for role in ([name] if name else permissions.BY_ROLE) for each in permissions.manifests(role)
    )


def _details(where: ConnectConfig, name: str) -> View:
    (overview,) = clusters.ask(where, lambda client, namespace: status.overviews(client, namespace, name))
    return render.details(overview, cluster.options_of(where))


def _follow(shell: Shell, start: AbstractContextManager[Iterable[Any]], name: str) -> None:
    """Show the steps of a start as they come."""
    try:
        with start as steps:
            for step in steps:
                shell.say(render.step(step, shell.face))
    except KeyboardInterrupt:
        raise CommandInterrupted(
            f"Interrupted. Service {name} stays if it was created.",
            hint=advice("{service_wait:{name}} follows it, {service_delete:{name}} removes it.", name=name),
        ) from None


def _namespace(values: Values) -> str:
    """Return the namespace of a service that is deployed, without contacting the cluster."""
    where = cluster.where(values, others=False)
    if where.namespace or where.cluster:
        return where.namespace or names.DEFAULT_NAMESPACE
    try:
        return tasks.run(clusters.resolve(where)).namespace
    except ConfigError:
        if where.context or where.kubeconfig or where.local:
            raise
        # No cluster at all is fine for a look at what would be created.
        return names.DEFAULT_NAMESPACE


ACTIONS: Mapping[str, Action] = {
    "slices": slices,
    "services": services,
    "service deploy": deploy,
    "service show": show,
    "service wait": wait,
    "service delete": delete,
    "network-policy": network_policy,
    "manifests roles": print_roles,
}
