"""The commands of ``%pathways`` about whole services: list, show, deploy, wait, delete."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pathways_jupyter import entry
from pathways_jupyter.commands.declaration import CLUSTER
from pathways_jupyter.config import ConnectConfig
from pathways_jupyter.errors import ServiceError
from pathways_jupyter.magics.notebook_session import Connection
from pathways_jupyter.render.view import View

Values = Mapping[str, Any]

_PLACE = {option.name for option in CLUSTER}


def services(connection: Connection, values: Values) -> View:
    """The services that one may see."""
    from pathways_jupyter.render import services as picture
    from pathways_jupyter.service import overview

    where = _cluster(connection, values)
    # The session's own namespace is no wish for only that one.
    namespace = values.get("namespace", "")
    return picture.view(entry.ask(where, lambda client, _: overview.overviews(client, namespace)))


def show(connection: Connection, values: Values) -> View:
    """One service in full."""
    from pathways_jupyter.render import services as picture
    from pathways_jupyter.service import overview

    where = _cluster(connection, values)
    (found,) = entry.ask(where, lambda client, namespace: overview.overviews(client, namespace, values["name"]))
    return picture.details(found)


def deploy(connection: Connection, values: Values) -> View | None:
    """Deploy a service, and follow its start."""
    import yaml

    from pathways_jupyter.service import deploy as deploying
    from pathways_jupyter.service import deployment, rollout

    plan = entry.deployment(values)
    if values.get("dry_run"):
        plan = plan.within(entry.namespace({name: values[name] for name in _PLACE & set(values)}))
        connection.screen.line(yaml.safe_dump_all(deployment.manifests(plan), sort_keys=False).rstrip())
        return None
    seconds = entry.seconds("--timeout", values.get("timeout"), default=rollout.TIMEOUT_SECONDS)
    where = _cluster(connection, values)
    steps = entry.stream(
        where,
        lambda client, namespace: deploying.run(
            client,
            plan.within(namespace),
            skip_checks=bool(values.get("skip_checks")),
            follow=not values.get("no_wait"),
            seconds=seconds,
        ),
    )
    _follow(connection, steps, plan.spec.name)
    return show(connection, {**values, "name": plan.spec.name})


def wait(connection: Connection, values: Values) -> View:
    """Follow a service's start."""
    from pathways_jupyter.service import rollout

    seconds = entry.seconds("--timeout", values.get("timeout"), default=rollout.TIMEOUT_SECONDS)
    steps = entry.stream(
        _cluster(connection, values),
        lambda client, namespace: rollout.follow(client, namespace, values["name"], seconds=seconds),
    )
    _follow(connection, steps, values["name"])
    return show(connection, values)


def delete(connection: Connection, values: Values) -> None:
    """Delete a service, after a question that names its users."""
    from IPython.core.error import StdinNotImplementedError

    from pathways_jupyter.service import deploy as deploying

    where = _cluster(connection, values)
    found, _, question = entry.ask(
        where, lambda client, namespace: deploying.find_to_delete(client, namespace, values["name"])
    )
    if not values.get("yes"):
        try:
            answer = input(f"{question} [y/N] ")
        except (StdinNotImplementedError, EOFError):
            raise ServiceError(f"Not deleted: {question}", hint="No answer can be given here: add --yes.") from None
        if answer.strip().lower() not in {"y", "yes"}:
            connection.screen.line("Not deleted.")
            return
    entry.ask(where, lambda client, _: deploying.remove(client, found))
    connection.screen.line(f"Service {found.name} is deleted from namespace {found.namespace}.")


def _cluster(connection: Connection, values: Values) -> ConnectConfig:
    """The cluster that the options name, by default that of this notebook's session."""
    current = connection.session
    named = {name: values[name] for name in _PLACE & set(values)}
    if current is None or set(named) - {"namespace"}:
        return entry.look(named)
    record = current.record
    where: ConnectConfig = current.config
    return dataclasses.replace(where, namespace=named.get("namespace", record.namespace), service=record.service)


def _follow(connection: Connection, steps: Iterable[Any], name: str) -> None:
    """Print the steps of a start as they come."""
    from pathways_jupyter.render import services as picture

    try:
        for step in steps:
            connection.screen.line(picture.line(step))
    except KeyboardInterrupt:
        raise ServiceError(
            f"Interrupted. Service {name} stays if it was created.",
            hint=f"%pathways service wait {name} follows it, %pathways service delete {name} removes it.",
        ) from None


ACTIONS: Mapping[str, Callable[[Connection, Values], Any]] = {
    "services": services,
    "service deploy": deploy,
    "service show": show,
    "service wait": wait,
    "service delete": delete,
}
