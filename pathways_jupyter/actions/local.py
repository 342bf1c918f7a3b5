"""``local``: the embedded cluster on this machine."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import Any

from pathways_jupyter.actions.shell import NOT_RUNNING, Action, Shell, Values
from pathways_jupyter.base import tpu
from pathways_jupyter.base.text import parse_seconds, parse_whole_number
from pathways_jupyter.local import cluster
from pathways_jupyter.local.cluster import Cluster
from pathways_jupyter.local.settings import DEFAULT_IDLE_SECONDS
from pathways_jupyter.render import text
from pathways_jupyter.render.view import View, preformatted, said

_LONGEST_AWAY_SECONDS = 600.0


def up(shell: Shell, values: Values) -> View:
    """Start the cluster, or add the slices that it lacks, and wait until its service is ready."""
    slices, spare = values.get("tpu", "tpuv6e:2x2"), values.get("spare")
    instances = tpu.parse_instances(slices)
    if "=" not in slices:
        instances = dict.fromkeys(instances, 2)
    running = cluster.up(
        instances,
        name=_name(values),
        idle_seconds=parse_seconds("--idle", values.get("idle", DEFAULT_IDLE_SECONDS)),
        port=parse_whole_number("--port", values.get("port", 0), most=65535),
        sidecar=not values.get("no_sidecar"),
        fast_heal=bool(values.get("fast_heal")),
        spare=tpu.parse_instances(spare) if spare else {},
        bucket=os.path.abspath(os.path.expanduser(values["bucket"])) if values.get("bucket") else "",
    )
    return _view(running)


def down(shell: Shell, values: Values) -> View:
    """Stop the cluster and everything that runs in it."""
    name = _name(values)
    ended = cluster.down(name=name)
    return said("The embedded cluster is down." if ended else "It was not running.", {"name": name, "ended": ended})


def status(shell: Shell, values: Values) -> View:
    """Return whether the cluster is running, and its slices."""
    running = cluster.find(_name(values))
    if running is None:
        why = cluster.absence(_name(values))
        return View(None, f"{why}\n  {why.advice(shell.face)}", "", exit_code=NOT_RUNNING)
    return _view(running)


def kubeconfig(shell: Shell, values: Values) -> View:
    """Return the path of the cluster's kubeconfig."""
    running = _running(values)
    return said(str(running.kubeconfig), {"kubeconfig": running.kubeconfig, "context": running.context})


def restart_api(shell: Shell, values: Values) -> View:
    """Restart the cluster's API server in place, like an upgrade of a real cluster's control plane."""
    running = _running(values)
    running.restart_api(away=parse_seconds("--away", values.get("away", 0), most=_LONGEST_AWAY_SECONDS))
    return said("The API server was restarted; pods kept running.", _value(running))


def _name(values: Values) -> str:
    return str(values.get("name", "local"))


def _running(values: Values) -> Cluster:
    running = cluster.find(_name(values))
    if running is None:
        raise cluster.absence(_name(values))
    return running


def _value(running: Cluster) -> dict[str, Any]:
    return {**vars(running), "failed": running.status()["failed"]}


def _view(running: Cluster) -> View:
    value, named = _value(running), "" if running.name == "local" else f" --name {running.name}"
    slices = text.instances(running.instances)
    lines = [f"The embedded cluster {running.name!r} is up: {slices}, process {running.pid}."]
    for service, why in value["failed"].items():
        lines.append(f"  Its service {service} has failed permanently: {why}.")
        lines.append(f"  Restart it: pathways-jupyter local down{named}, then pathways-jupyter local up{named}.")
    if running.fast_heal:
        lines.append("  It replaces a dead worker at once; a real cluster waits 10, 20, 40 ... seconds.")
    # --local means the cluster of the default name only.
    how = "--local" if running.name == "local" else f"--kubeconfig {shlex.quote(str(running.kubeconfig))}"
    # A session is on one service, and a service has slices of one type.
    lines += [
        f"  In a notebook: %pathways connect {how} --tpu {kind}={count}" for kind, count in running.instances.items()
    ]
    for kind, count in running.spare.items():
        lines.append(f"  To deploy a service: pathways-jupyter service deploy NAME {how} --tpu {kind} --slices {count}")
    lines.append(f"  In a terminal: kubectl --kubeconfig {running.kubeconfig} get pods")
    return preformatted("\n".join(lines), value)


ACTIONS: Mapping[str, Action] = {
    "local up": up,
    "local down": down,
    "local status": status,
    "local kubeconfig": kubeconfig,
    "local restart-api": restart_api,
}
