"""``local``: the embedded cluster on this machine."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from pathways_jupyter.actions.shell import NOT_RUNNING, Action, Shell, Values
from pathways_jupyter.base import tasks, tpu
from pathways_jupyter.base.errors import LocalClusterError
from pathways_jupyter.base.events import SessionState
from pathways_jupyter.base.runtime_files import DEFAULT_CLUSTER
from pathways_jupyter.base.text import absolute_path, count, parse_seconds, parse_whole_number, size, some
from pathways_jupyter.local import cluster
from pathways_jupyter.local.cluster import LocalCluster
from pathways_jupyter.local.directory import BUCKET, ClusterDirectory, named
from pathways_jupyter.local.settings import DEFAULT_IDLE_SECONDS
from pathways_jupyter.render import text
from pathways_jupyter.render.view import View, preformatted, said
from pathways_jupyter.saved.stored_save import kept_in
from pathways_jupyter.session import client, clusters, registry
from pathways_jupyter.session.registry import SessionRecord

_LONGEST_AWAY_SECONDS = 600.0
_NOTHING_TO_LOSE = {SessionState.LOST, SessionState.CLOSING, SessionState.CLOSED, SessionState.FAILED}


def up(shell: Shell, values: Values) -> View:
    """Start the cluster, or add the slices that it lacks, and wait until its service is ready."""
    slices, spare = values.get("tpu", "tpuv6e:2x2"), values.get("spare")
    instances = tpu.parse_instances(slices)
    if not any(sign in slices for sign in "={"):
        # Types without a number, written out neither as TYPE=COUNT nor as a dictionary.
        instances = dict.fromkeys(instances, 2)
    running = cluster.up(
        instances,
        name=_name(values),
        idle_seconds=parse_seconds("--idle", values.get("idle", DEFAULT_IDLE_SECONDS)),
        port=parse_whole_number("--port", values.get("port", 0), most=65535),
        sidecar=not values.get("no_sidecar"),
        fast_heal=bool(values.get("fast_heal")),
        spare=tpu.parse_instances(spare) if spare else {},
        permit=lambda question: bool(values.get("yes")) or (shell.can_answer and shell.confirm(question)),
        bucket=str(absolute_path(values["bucket"])) if values.get("bucket") else "",
    )
    return _view(running)


def down(shell: Shell, values: Values) -> View:
    """Stop the cluster and remove its bucket, after a question if that is more than its own services."""
    name = _name(values)
    running, bucket = cluster.find(name), ClusterDirectory(name).path / BUCKET
    costs = [f"ends {'; '.join(ending)}"] if running is not None and (ending := _ending_with(running)) else []
    if saves := kept_in(bucket):
        costs.append(f"deletes {count(len(saves), 'save')} ({size(sum(saves.values()))}): {some(list(saves))}")
    if costs and not values.get("yes"):
        # In a terminal, where alone this command is, a no ends it.
        end = "Remove what it left" if running is None else "Stop the embedded cluster"
        shell.confirm(f"This {', and '.join(costs)}. {end}?")
    has_files = bucket.exists()
    ended = cluster.down(name=name)
    otherwise = "It was not running; its files are removed." if has_files else "It was not running."
    return said("The embedded cluster is down." if ended else otherwise, {"name": name, "ended": ended})


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


def _ending_with(running: LocalCluster) -> list[str]:
    """Return what would be lost with the cluster: sessions, jobs, services that were deployed."""
    using, ending = _sessions_of(running), []
    if using:
        those = f"{count(len(using), 'session')} with {'its' if len(using) == 1 else 'their'} arrays"
        ending.append(f"{those}: {', '.join(map(_holding, using))}")
    try:
        work = running.status()["work"]
    except LocalClusterError as error:
        # It may have been stopped in the middle of anything.
        return [*ending, f"whatever else runs there, which is not known: {error}".rstrip(".")]
    # Those of a session are counted with it, unless the session is none of this user's.
    known = {each.id for each in registry.sessions()}
    ending += [f"{each['kind']} {each['name']}" for each in work if each["session"] not in known]
    return ending


def _sessions_of(running: LocalCluster) -> list[SessionRecord]:
    """Return the sessions that would be lost with the cluster; suspended ones have their arrays in its bucket."""
    there = tasks.run(client.present([each for each in registry.sessions() if _is_on(running, each)]))
    return [each for each in there if each.supervisor != registry.ABANDONED and each.state not in _NOTHING_TO_LOSE]


def _is_on(running: LocalCluster, record: SessionRecord) -> bool:
    embedded = clusters.Embedded.of(record)
    return record.is_here and embedded is not None and embedded.kubeconfig == running.kubeconfig


def _holding(record: SessionRecord) -> str:
    """Return ``train.ipynb (connected, 2 slices of tpuv6e:2x2)``."""
    slices = [f"{count(number, 'slice')} of {kind}" for kind, number in record.instances.items()]
    job = [f"job {record.pathways_job}"] if record.pathways_job else []
    return f"{record.owner} ({', '.join([record.state, *slices, *job])})"


def _name(values: Values) -> str:
    return str(values.get("name", DEFAULT_CLUSTER))


def _running(values: Values) -> LocalCluster:
    running = cluster.find(_name(values))
    if running is None:
        raise cluster.absence(_name(values))
    return running


def _value(running: LocalCluster) -> dict[str, Any]:
    settings = running.settings
    return {
        **{name: value for name, value in vars(running).items() if name != "settings"},
        **{name: getattr(settings, name) for name in ("instances", "spare", "services", "sidecar", "fast_heal")},
        "failed": running.status()["failed"],
    }


def _view(running: LocalCluster) -> View:
    value, settings, name = _value(running), running.settings, named(running.name)
    slices = text.instances(settings.instances)
    lines = [f"The embedded cluster {running.name!r} is up: {slices}, process {running.pid}."]
    for service, why in value["failed"].items():
        lines.append(f"  Its service {service} has failed for good: {why}.")
        lines.append(f"  Restart it: pathways-jupyter local down{name}, then pathways-jupyter local up{name}.")
    if settings.fast_heal:
        lines.append("  It replaces a dead worker at once; a real cluster waits 10, 20, 40 ... seconds.")
    # --local means the cluster of the default name only.
    how = f"--kubeconfig {shlex.quote(str(running.kubeconfig))}" if name else "--local"
    # A session is on one service, and a service has slices of one type.
    lines += [
        f"  In a notebook: %pathways connect {how} --tpu {kind}={number}" for kind, number in settings.instances.items()
    ]
    for kind, number in settings.spare.items():
        lines.append(
            f"  To deploy a service: pathways-jupyter service deploy NAME {how} --tpu {kind} --slices {number}"
        )
    lines.append(f"  In a terminal: kubectl --kubeconfig {running.kubeconfig} get pods")
    return preformatted("\n".join(lines), value)


ACTIONS: Mapping[str, Action] = {
    "local up": up,
    "local down": down,
    "local status": status,
    "local kubeconfig": kubeconfig,
    "local restart-api": restart_api,
}
