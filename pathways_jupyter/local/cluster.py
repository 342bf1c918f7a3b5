"""The front door to the cluster on this machine: start it, find it, end it.

Light to import: the cluster itself runs in a process of its own (:mod:`~pathways_jupyter.local.daemon`), which outlives
who started it and ends by itself when nobody uses it. From here on it is a cluster like any other: give its kubeconfig
to whoever talks to Kubernetes.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from pathways_jupyter import tpu
from pathways_jupyter.errors import LocalClusterError
from pathways_jupyter.local import control
from pathways_jupyter.local.control import Order
from pathways_jupyter.local.directory import ClusterDirectory, Record

DEFAULT_INSTANCES: Mapping[str, int] = {"tpuv6e:2x2": 2}
DEFAULT_IDLE_SECONDS = 1800.0
CONTEXT = "pathways-local"

_START_SECONDS = 60.0
_READY_SECONDS = 120.0
_STOP_SECONDS = 20.0


@dataclass(frozen=True)
class Cluster:
    """A cluster that runs on this machine.

    Attributes:
      directory: Where it keeps everything; gone when it ends.
      kubeconfig: The administrator's; its only context is `context`.
      pid: The daemon's process.
      url: Where the API is served.
      instances: Slices per instance type.
      sidecar: Whether every worker has a colocated Python sidecar.
      fast_heal: Whether it replaces what failed quickly, instead of as Kubernetes does.
    """

    name: str
    directory: Path
    kubeconfig: Path
    pid: int
    url: str
    instances: Mapping[str, int] = field(default_factory=dict)
    sidecar: bool = False
    fast_heal: bool = False
    context: str = CONTEXT

    def restart_api(self) -> None:
        """Restarts the API server in place: every connection drops, the state is read from disk, pods go on.

        Raises:
          LocalClusterError: The cluster has ended.
        """
        control.ask(_running(self.name).control, Order.RESTART_API, timeout=_START_SECONDS)

    def wait(self, *, timeout: float = _READY_SECONDS) -> None:
        """Waits until every service has all its slices.

        Raises:
          LocalClusterError: The cluster ended meanwhile, or is not ready in time.
        """
        try:
            control.ask(_running(self.name).control, Order.WAIT, timeout=timeout)
        except TimeoutError:
            raise LocalClusterError(
                f"The local cluster's service is not ready after {timeout:g} s.",
                hint=f"Look at it: kubectl --kubeconfig {self.kubeconfig} get pods -A",
            ) from None

    def status(self) -> dict[str, Any]:
        """What the daemon says of itself: ``ready``, ``busy``, ``services``, ``failed``, ``instances``, ``url``...

        ``failed`` says of services that have failed for good, by name, why.

        Raises:
          LocalClusterError: The cluster has ended.
        """
        return control.ask(_running(self.name).control, Order.STATUS, timeout=_START_SECONDS)


def up(
    instances: Mapping[str, int] = DEFAULT_INSTANCES,
    *,
    name: str = "local",
    idle_seconds: float = DEFAULT_IDLE_SECONDS,
    wait: bool = True,
    sidecar: bool = False,
    hollow: bool = False,
    port: int = 0,
    repair_seconds: float | None = None,
    stream_idle_seconds: float | None = None,
    fast_heal: bool = False,
) -> Cluster:
    """Starts a cluster with these slices, or gives the one of that name that runs.

    Args:
      instances: Slices per instance type; each type becomes a service of its own.
      idle_seconds: The cluster ends after so long without a client or a Job.
      wait: Return only when every slice is ready; else as soon as the API is served.
      sidecar: Give every worker pod a colocated Python sidecar.
      hollow: Only pretend to run the services' pods; for tests of scale.
      port: Where to serve the API on 127.0.0.1; 0 for any free port.
      repair_seconds: How long a deleted node stays away; None for the usual time.
      stream_idle_seconds: How long a port-forward or an exec may be without a message before it is cut, as a kubelet
        does; None for a kubelet's default of four hours.
      fast_heal: Replace what failed after a second or two instead of after Kubernetes' 10, 20, 40 ... seconds.

    Raises:
      ConfigError: An instance type or a count cannot be used.
      LocalClusterError: The cluster cannot be started, or one of that name runs with other slices.
    """
    wanted = _parsed(instances)
    settings: dict[str, Any] = {
        "idle_seconds": idle_seconds,
        "sidecar": sidecar,
        "hollow": hollow,
        "port": port,
        "fast_heal": fast_heal,
    }
    if repair_seconds is not None:
        settings["repair_seconds"] = repair_seconds
    if stream_idle_seconds is not None:
        settings["stream_idle_seconds"] = stream_idle_seconds
    return _up(name, needed=wanted, fresh=wanted, settings=settings, wait=wait)


def ensure(needed: Mapping[str, int] | None = None, *, name: str = "local", sidecar: bool = True) -> Cluster:
    """The running cluster if it has the slices that are needed, or a new one, on whose hosts a notebook can run cells.

    A new cluster is not smaller than the default one, so that the next notebook finds a slice in it too; one that runs
    is measured only by what is needed.

    Args:
      needed: Slices per instance type; None for whatever the cluster has.

    Raises: See :func:`up`.
    """
    wanted = _parsed(needed or {})
    fresh = {kind: max(count, DEFAULT_INSTANCES.get(kind, 0)) for kind, count in wanted.items()}
    settings = {"idle_seconds": DEFAULT_IDLE_SECONDS, "sidecar": sidecar}
    return _up(name, needed=wanted, fresh=fresh or DEFAULT_INSTANCES, settings=settings, wait=True)


def _up(
    name: str, *, needed: Mapping[str, int], fresh: Mapping[str, int], settings: Mapping[str, Any], wait: bool
) -> Cluster:
    """The cluster that runs, when it has what is `needed`; else a new one with `fresh` slices and these settings."""
    place = ClusterDirectory(name)
    with place.exclusively():
        if not place.alive():
            _start(place, {"instances": dict(fresh), **settings})
        record = _running(name)
    cluster = _cluster(place, record)
    end_it = f"End it first, with what runs in it: pathways-jupyter local down{_named(name)}"
    if short := {kind: count for kind, count in needed.items() if cluster.instances.get(kind, 0) < count}:
        raise LocalClusterError(
            f"The local cluster has {tpu.format_instances(cluster.instances)}, too few for "
            f"{tpu.format_instances(short)}.",
            hint=end_it,
        )
    if settings.get("fast_heal") and not cluster.fast_heal:
        raise LocalClusterError(f"The local cluster {name!r} runs already, and does not heal fast.", hint=end_it)
    if wait:
        cluster.wait()
    return cluster


def _parsed(instances: Mapping[str, int]) -> dict[str, int]:
    return {str(tpu.parse_instance_type(kind)): tpu.parse_count(count, kind) for kind, count in instances.items()}


def find(name: str = "local") -> Cluster | None:
    """The cluster of that name; None when there is none that can be used, see :func:`absence`."""
    place = ClusterDirectory(name)
    record = place.read() if place.alive() else None
    return None if record is None else _cluster(place, record)


def absence(name: str = "local") -> LocalClusterError:
    """Why :func:`find` finds no cluster, and what to do."""
    place = ClusterDirectory(name)
    if place.alive() and place.written():
        return LocalClusterError(
            f"The local cluster {name!r} was started by a version of pathways_jupyter that this one cannot talk to.",
            hint=f"End it, with what runs in it: pathways-jupyter local down{_named(name)}",
        )
    return LocalClusterError(
        f"The local cluster {name!r} is not running.", hint=f"Start it: pathways-jupyter local up{_named(name)}"
    )


def status(name: str = "local") -> dict[str, Any] | None:
    """What a running cluster says of itself; None when it does not run."""
    cluster = find(name)
    return None if cluster is None else cluster.status()


def down(name: str = "local") -> bool:
    """Ends a cluster and everything in it; whether one was running. Returns when all of it is gone."""
    place = ClusterDirectory(name)
    with place.exclusively():
        running = place.alive()
        if running and (record := place.read()) is not None:
            with contextlib.suppress(TimeoutError):
                control.stop(record.control, timeout=_STOP_SECONDS)
        place.kill()
        place.until_dead()
        place.remove()
    return running


def _start(place: ClusterDirectory, settings: Mapping[str, Any]) -> None:
    """Starts the daemon and waits until it serves the API."""
    alive = place.make()
    ready, theirs = os.pipe()
    try:
        with (place.path / "daemon.err").open("wb") as errors:
            starter = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "pathways_jupyter.local.daemon",
                    place.name,
                    str(theirs),
                    str(alive),
                    json.dumps(settings),
                ],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                pass_fds=(theirs, alive),
                start_new_session=True,
            )
    except BaseException:
        os.close(ready)
        raise
    finally:
        os.close(theirs)
        os.close(alive)
    # Closed when this is interrupted, too: that is how the daemon learns that nobody wants it any more.
    with open(ready, encoding="utf-8") as pipe:
        # This is only the daemon's parent, which ends at once: who starts a cluster must not have to bury it.
        starter.wait()
        _await_start(pipe, place)


def _await_start(pipe: TextIO, place: ClusterDirectory) -> None:
    answered, _, _ = select.select([pipe], [], [], _START_SECONDS)
    line = pipe.readline() if answered else json.dumps({"error": "The local cluster does not start."})
    if not answered:
        place.kill()
    answer: dict[str, Any] = json.loads(line) if line else {}
    if "port" in answer:
        return
    place.until_dead()
    log = place.path / "daemon.err"
    last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:] if log.exists() else []
    place.remove()
    raise LocalClusterError(
        answer.get("error") or f"The local cluster did not start: {''.join(last) or 'its daemon ended'}.",
        hint=answer.get("hint", ""),
    )


def _running(name: str) -> Record:
    place = ClusterDirectory(name)
    record = place.read() if place.alive() else None
    if record is None:
        raise absence(name)
    return record


def _named(name: str) -> str:
    return "" if name == "local" else f" --name {name}"


def _cluster(place: ClusterDirectory, record: Record) -> Cluster:
    return Cluster(
        place.name,
        place.path,
        place.kubeconfig,
        record.pid,
        f"https://127.0.0.1:{record.port}",
        dict(record.instances),
        record.sidecar,
        record.fast_heal,
    )
