"""Turn the options of a command into hosts and a request, the same for the magics and the command line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.text import parse_seconds
from pathways_jupyter.multihost.queued_resources import DEFAULT_RUNTIME, TIERS, Spec
from pathways_jupyter.multihost.run import LOG_FOLDER, Request
from pathways_jupyter.multihost.targets import Selection

_SSH = ("hosts", "tpu_prefix", "job", "service", "user", "known_hosts", "accept_new", "internal_ip", "project", "zone")


def selection(values: Mapping[str, Any], cluster: ConnectConfig | None, session_service: str = "") -> Selection:
    """Return the hosts that `values` name.

    Args:
      cluster: The cluster that they name, if hosts in a cluster are meant.
      session_service: Address of the service of the session that they name.
    """
    given = {name: values[name] for name in _SSH if values.get(name)}
    return Selection(**given, keys=tuple(values.get("keys") or ()), session=session_service, cluster=cluster)


def request(values: Mapping[str, Any], command: str) -> Request:
    """Return the run that `values` describe.

    Raises:
      ConfigError: There is no command, or values contradict each other.
    """
    if not command.strip():
        raise ConfigError("Which command?", hint="Write it after --, for example: -- python3 train.py.")
    if values.get("existing") and not values.get("name"):
        raise ConfigError("Which existing folder?", hint="Name it with --run-name.")
    return Request(
        command=command,
        directory=Path(values.get("directory") or "."),
        name=str(values.get("name") or ""),
        exclude=tuple(values.get("exclude") or ()),
        send=not values.get("existing"),
        logs=Path(values.get("logs") or LOG_FOLDER).expanduser(),
        keep_going=bool(values.get("keep_going")),
        detach=bool(values.get("detach")),
        grace=parse_seconds("--grace", values.get("grace", 10)),
    )


def queued_resource(values: Mapping[str, Any], nodes: int) -> Spec:
    """Return the queued resource that `values` describe.

    Raises:
      ConfigError: A value is missing, or values contradict each other.
    """
    tiers = [tier for tier in TIERS if values.get(tier.replace("-", "_"))]
    if len(tiers) > 1:
        raise ConfigError(f"A queued resource has one tier, not {' and '.join(tiers)}.", hint="Leave one of them out.")
    if not values.get("accelerator"):
        raise ConfigError("Which TPU?", hint="Add --accelerator-type, for example v4-8.")
    given = {name: values[name] for name in ("prefix", "network", "internal_only") if values.get(name)}
    runtime, tier = values.get("runtime") or DEFAULT_RUNTIME, tiers[0] if tiers else "on-demand"
    return Spec(values["name"], values["accelerator"], runtime, nodes=nodes, tier=tier, **given)
