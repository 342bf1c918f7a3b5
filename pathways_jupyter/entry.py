"""Turn a user's arguments into a config for a session; the only place where the interfaces reach `local`.

:func:`resolve` validates and starts nothing. For ``local=True``, :func:`located` ensures that the embedded cluster is
running and fills in its kubeconfig and context. From there on it is a cluster like any other.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pathways_jupyter import blocking, config
from pathways_jupyter.commands.declaration import CLUSTER
from pathways_jupyter.config import ConnectConfig
from pathways_jupyter.errors import ConfigError, SessionError
from pathways_jupyter.events import SessionState
from pathways_jupyter.setting_values import LARGEST_NUMBER

if TYPE_CHECKING:
    from pathways_jupyter.kube.client import Client
    from pathways_jupyter.multihost.targets import Wanted
    from pathways_jupyter.service.checks import Finding
    from pathways_jupyter.service.deployment import Deployment
    from pathways_jupyter.session.registry import SessionRecord

Answer = TypeVar("Answer")

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def resolve(arguments: Mapping[str, Any]) -> ConnectConfig:
    """Return the validated config of `arguments`; starts nothing.

    Args:
      arguments: As for :func:`pathways_jupyter.config.resolve`.

    Raises:
      ConfigError: A value is invalid.
    """
    checked = config.resolve(arguments)
    for name in ("cluster", "context", "kubeconfig"):
        if checked.local and getattr(checked, name):
            raise ConfigError(
                f"The embedded cluster was asked for, and so was {name} {getattr(checked, name)!r}.",
                hint=f"Leave out --local or --{name}.",
            )
    return checked


def located(asked: ConnectConfig) -> ConnectConfig:
    """Return `asked`; if it means the embedded cluster, start or grow that if needed and fill in its kubeconfig.

    Raises:
      LocalClusterError: The embedded cluster does not start.
    """
    # A cluster that is started now has no jobs.
    return on_local_cluster(asked, start=not asked.job) if asked.local else asked


def embedded_stage(asked: ConnectConfig) -> str:
    """Return what :func:`located` has to do for `asked`, as a stage of connecting to the embedded cluster."""
    from pathways_jupyter.local import cluster

    running = cluster.find()
    if running is None:
        return "start the embedded cluster"
    return f"{'add slices to' if running.lacks(asked.instances) else 'find'} the embedded cluster"


def look(arguments: Mapping[str, Any]) -> ConnectConfig:
    """Return the config for a read-only command, which never starts the embedded cluster.

    Raises:
      ConfigError: A value is invalid.
      LocalClusterError: The embedded cluster is requested, but not running.
    """
    asked = resolve(arguments)
    return on_local_cluster(asked, start=False) if asked.local else asked


def on_local_cluster(asked: ConnectConfig, *, start: bool = True) -> ConnectConfig:
    """Return `asked` with the kubeconfig of the embedded cluster filled in.

    Args:
      start: Start it if it is not running, and add the slices that it lacks.

    Raises:
      LocalClusterError: It does not start; or it is not running and `start` is false.
    """
    from pathways_jupyter.local import cluster

    running = cluster.ensure(asked.instances) if start else cluster.find()
    if running is None:
        raise cluster.absence()
    return dataclasses.replace(
        asked,
        # A job has its own slices, which are not those of the cluster's service.
        instances=asked.instances or ({} if asked.job else running.instances),
        kubeconfig=str(running.kubeconfig),
        context=running.context,
    )


def lab_image(config: ConnectConfig, image: str) -> str:
    """Return the image of a lab: `image`, or that of the embedded cluster.

    Raises:
      ConfigError: A real cluster needs an image, and none is given.
    """
    if image:
        return image
    if not config.local:
        raise ConfigError(
            "A lab needs an image with JupyterLab and pathways_jupyter.",
            hint="Give one with --image; docs/in-cluster.md shows how to build it.",
        )
    from pathways_jupyter.local import programs

    return programs.reference(programs.LAB_IMAGE)


def revive(asked: ConnectConfig, state: SessionState) -> None:
    """Restart the embedded cluster before a reconnect, if the session may have been lost together with it.

    The session finds the new cluster, because it has the same name.

    Raises:
      LocalClusterError: It does not start.
    """
    if asked.local and not asked.job and state is SessionState.LOST:
        on_local_cluster(dataclasses.replace(asked, kubeconfig="", context=""))


def where(arguments: Mapping[str, Any]) -> ConnectConfig:
    """Return the cluster and service for a command outside of a connected notebook.

    Those in `arguments`; without a cluster there, those of the only session on this machine; if there is not exactly
    one session, the defaults.
    """
    from pathways_jupyter.session import protocol, registry

    given = config.canonical({name: value for name, value in arguments.items() if value})
    named = {option.name for option in CLUSTER} & set(given)
    records = [] if named else registry.sessions()
    if len(records) != 1 or not (records[0].service or records[0].pathways_job):
        return look(arguments)
    (record,) = records
    return dataclasses.replace(
        protocol.config_from_json(record.config),
        namespace=record.namespace,
        context=record.context,
        service=given.get("service") or record.service,
    )


def find_session(beginning: str = "") -> SessionRecord:
    """Return the session whose id begins with `beginning`; the only one on this machine if that is empty.

    Raises:
      SessionError: There is none, or more than one.
    """
    from pathways_jupyter.session import registry

    records = registry.sessions()
    found = [record for record in records if record.id.startswith(beginning)]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(record.id for record in records)
    if not records:
        raise SessionError("There is no session on this machine.", hint="%pathways connect makes one.")
    if not found:
        raise SessionError(f"There is no session {beginning!r}.", hint=f"Sessions on this machine: {listed}.")
    which = f"{beginning!r} matches" if beginning else "There are"
    raise SessionError(f"{which} {len(found)} sessions.", hint=f"Choose one: {listed}.")


def hosts_wanted(values: Mapping[str, Any]) -> Wanted:
    """Return the hosts that the options of a command on many hosts name; starts nothing.

    Raises:
      ConfigError: A value is invalid.
      SessionError: There is no such session.
    """
    from pathways_jupyter.multihost import asked

    if not asked.in_cluster(values):
        return asked.wanted(values, None)
    given = {name: values[name] for name in asked.CLUSTER_NAMES if values.get(name)}
    if not values.get("session"):
        return asked.wanted(values, where(given))
    from pathways_jupyter.session import protocol

    record = find_session(values["session"])
    config = dataclasses.replace(
        protocol.config_from_json(record.config), namespace=record.namespace, context=record.context
    )
    return asked.wanted(values, config, record.service)


def whole_number(option: str, value: str | int) -> int:
    """Parse a whole number that Kubernetes can store.

    Raises:
      ConfigError: `value` is not one.
    """
    text = str(value).strip()
    if not text.isdecimal():
        raise ConfigError(f"{option} must be a whole number, not {value}.", hint=f"For example: {option} 20.")
    # By its length first: Python refuses to convert thousands of digits.
    if len(text) > len(str(LARGEST_NUMBER)) or int(text) > LARGEST_NUMBER:
        raise ConfigError(f"{option} must be at most {LARGEST_NUMBER}, not {value}.", hint=f"For example: {option} 20.")
    return int(text)


def seconds(option: str, value: str | float | None, *, default: float) -> float:
    """Parse a number of seconds; `default` if it was not given.

    Raises:
      ConfigError: `value` is not a number, or negative.
    """
    try:
        number = default if value is None else float(value)
    except ValueError:
        number = -1.0
    if not number >= 0:
        raise ConfigError(f"{option} must be a number of seconds, not {value}.", hint=f"For example: {option} 600.")
    return number


def time(option: str, value: str | float | None, default: float) -> float:
    """Parse a time: seconds, or a number with ``s``, ``m`` or ``h``; `default` if it was not given.

    Returns:
      Seconds.

    Raises:
      ConfigError: `value` is none.
    """
    text = str(value).strip() if value is not None else ""
    unit = _UNITS.get(text[-1:], 0.0)
    try:
        number = default if value is None else float(text[:-1]) * unit if unit else float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= LARGEST_NUMBER:
        most = f" of at most {LARGEST_NUMBER} s" if number > 0 else ""
        raise ConfigError(
            f"{option} must be a time{most}, not {value}.", hint=f"For example: {option} 30s, or {option} 2m."
        )
    return number


def deployment(values: Mapping[str, Any]) -> Deployment:
    """Return the service that the options of ``service deploy`` ask for; contacts nothing.

    Raises:
      ConfigError: An option is missing or invalid.
    """
    from importlib.metadata import version

    from pathways_jupyter.service import deployment as deployments

    return deployments.plan(values, jax=version("jax"))


def namespace(values: Mapping[str, Any]) -> str:
    """Return the namespace that commands with these cluster options use, without contacting the cluster.

    Raises:
      ConfigError: The cluster that the options name is not in the kubeconfig.
    """
    from pathways_jupyter.service import names
    from pathways_jupyter.session import reach

    asked = look(values)
    if asked.namespace or asked.cluster:
        return asked.namespace or names.DEFAULT_NAMESPACE
    try:
        return blocking.run(reach.cluster(asked)).namespace
    except ConfigError:
        if asked.context or asked.kubeconfig or asked.local:
            raise
        # No cluster at all is fine for a look at what would be created.
        return names.DEFAULT_NAMESPACE


def ask(where: ConnectConfig | SessionRecord, question: Callable[[Client, str], Awaitable[Answer]]) -> Answer:
    """Run `question` with a client of the cluster of `where` and the namespace; return its result.

    Raises:
      PathwaysError: The cluster cannot be reached, or `question` raised it.
    """
    from pathways_jupyter.session import reach

    return reach.ask(where, question)


def stream(
    where: ConnectConfig | SessionRecord, source: Callable[[Client, str], AsyncIterator[Answer]]
) -> Iterator[Answer]:
    """Yield the values of `source` as they arrive; :func:`ask` for asynchronous iterators."""
    from pathways_jupyter.session import reach

    return reach.stream(where, source)


def examine(
    config: ConnectConfig, *, lab: bool = False, platform: bool = False, faults: bool = False
) -> tuple[Finding, ...]:
    """Return the doctor's findings for a connection from this process to the cluster of `config`.

    Args:
      lab: Also check what `pathways-jupyter lab` needs.
      platform: Also check what deploying services and installing the operator need.
      faults: Also check what faults on purpose need.
    """
    from importlib.metadata import PackageNotFoundError, version
    from platform import python_version

    from pathways_jupyter.service import doctor
    from pathways_jupyter.service.checks import IN_CLUSTER_NEEDS, Level, failed
    from pathways_jupyter.service.doctor import FAULT_NEEDS, PLATFORM_NEEDS
    from pathways_jupyter.service.images import Versions
    from pathways_jupyter.service.lab.lifecycle import LAB_NEEDS
    from pathways_jupyter.session import reach, strays, sweep

    embedded = reach.Embedded.of(config)
    try:
        # From the metadata, because importing JAX takes longer than all checks together.
        versions = Versions(python=python_version(), jax=version("jax"), jaxlib=version("jaxlib"))
    except PackageNotFoundError:
        versions = Versions(python=python_version())
    left = [f"session {record.id} (its supervisor is gone)" for record in sweep.dead()]
    left += [f"files of session {each.session} (its supervisor died before writing a record)" for each in strays.find()]
    in_cluster = lab or "KUBERNETES_SERVICE_HOST" in os.environ
    asked = (
        (in_cluster, IN_CLUSTER_NEEDS),
        (lab, LAB_NEEDS),
        (platform, PLATFORM_NEEDS),
        (faults, FAULT_NEEDS),
    )
    further = [need for wanted, needs in asked if wanted for need in needs]
    findings = blocking.run(doctor.examine(config, versions=versions, leftovers=left, further=further, lab=lab))
    unreachable = any(each.level is Level.FAIL and each.name in {"cluster", "reachable"} for each in findings)
    if unreachable and embedded is not None and blocking.run(embedded.is_ending()):
        return tuple(failed(each.name, reach.ended()) if each.level is Level.FAIL else each for each in findings)
    hint = reach.embedded_hint(config)
    return tuple(
        dataclasses.replace(each, hint=f"{hint} {each.hint}") if each.name == "cluster" and each.hint and hint else each
        for each in findings
    )
