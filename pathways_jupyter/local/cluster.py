"""Public API of the cluster on this machine: start it, find it, end it.

Light to import: the cluster runs in a daemon process (:mod:`~pathways_jupyter.local.daemon`), which outlives the
process that started it and ends by itself when it is not used. Clients use it like any other cluster, through its
kubeconfig.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pathways_jupyter.base import tpu
from pathways_jupyter.base.errors import LocalClusterError
from pathways_jupyter.base.packages import require
from pathways_jupyter.local import control
from pathways_jupyter.local.control import Order
from pathways_jupyter.local.directory import ClusterDirectory, Record
from pathways_jupyter.local.settings import DEFAULT_IDLE_SECONDS, Settings, larger

DEFAULT_INSTANCES: Mapping[str, int] = {"tpuv6e:2x2": 2}
CONTEXT = "pathways-local"

_PACKAGES = ("cryptography", "gcp_storage_emulator", "google.protobuf", "ml_dtypes")
"""What the daemon imports, and pods of Pathways, beyond what every notebook needs."""
_START_SECONDS = 60.0
_READY_SECONDS = 120.0
_STOP_SECONDS = 20.0


@dataclass(frozen=True)
class Cluster:
    """A cluster that runs on this machine.

    Attributes:
      directory: Holds everything that it keeps on disk; removed when it ends.
      kubeconfig: The administrator's; its only context is `context`.
      pid: The daemon's process.
      url: Where the API is served.
      instances: Slices per instance type.
      sidecar: Whether every worker has a colocated Python sidecar.
      fast_heal: Whether failed pods are replaced after a second or two instead of with Kubernetes' back-off.
      spare: Slices per instance type that have nodes, but no service of the cluster's own.
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
    spare: Mapping[str, int] = field(default_factory=dict)

    def lacks(self, needed: Mapping[str, int]) -> dict[str, int]:
        """What of `needed` (slices per instance type) the cluster would have to grow to."""
        # Spare nodes count: a service may have been deployed on them, and connecting finds out whether it was.
        has = {kind: self.instances.get(kind, 0) + self.spare.get(kind, 0) for kind in needed}
        return {kind: count for kind, count in needed.items() if has[kind] < count}

    def restart_api(self, *, away: float = 0.0) -> None:
        """Restart the API server in place: connections drop, the state is read from disk, pods keep running.

        Args:
          away: Seconds for which it stays away.

        Raises:
          LocalClusterError: The cluster has ended.
        """
        control.ask(_running(self.name).control, Order.RESTART_API, timeout=_START_SECONDS + away, away=away)

    def wait(self, *, timeout: float = _READY_SECONDS) -> None:
        """Wait until every service has all its slices.

        Raises:
          LocalClusterError: The cluster ended while waiting, or is not ready in time.
        """
        try:
            control.ask(_running(self.name).control, Order.WAIT, timeout=timeout)
        except TimeoutError:
            raise LocalClusterError(
                f"The embedded cluster's service is not ready after {timeout:g} s.",
                hint=f"List its pods: kubectl --kubeconfig {self.kubeconfig} get pods -A",
            ) from None

    def status(self) -> dict[str, Any]:
        """The daemon's report about itself: ``ready``, ``busy``, ``services``, ``failed``, ``instances``, ``url``...

        ``failed`` maps the name of each service that has failed for good to the reason.

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
    fast_heal: bool = False,
    spare: Mapping[str, int] | None = None,
    bucket: str = "",
) -> Cluster:
    """Start a cluster with these slices, or return the running one of that name, with slices added that it lacks.

    Args:
      instances: Slices per instance type; each type becomes a service of its own.
      idle_seconds: The cluster ends after so long without a client or a Job.
      wait: Return only when every slice is ready; else as soon as the API is served.
      sidecar: Give every worker pod a colocated Python sidecar.
      hollow: Report the services' pods as running without starting processes; for tests of scale.
      port: Where to serve the API on 127.0.0.1; 0 for any free port.
      fast_heal: Replace failed pods after a second or two instead of after Kubernetes' 10, 20, 40 ... seconds.
      spare: Slices per instance type that get nodes but no service, for services that are deployed later.
      bucket: Directory for the objects of the cluster's bucket, which stays when the cluster ends.

    Raises:
      ConfigError: An instance type or a count cannot be used.
      LocalClusterError: The cluster cannot be started, or one of that name runs and does not heal as fast as wanted.
    """
    requested = _parsed(instances)
    settings = Settings(requested, _parsed(spare or {}), idle_seconds, sidecar, hollow, port, fast_heal, bucket)
    return _up(name, needed=requested, settings=settings, wait=wait)


def ensure(needed: Mapping[str, int] | None = None) -> Cluster:
    """The running cluster, with slices added that it lacks, else a new one whose hosts can run a notebook's cells.

    A new cluster is at least as large as the default one, so that the next notebook finds a slice in it too. One that
    was killed is started again as it was: its sessions reconnect to what they had.

    Args:
      needed: Slices per instance type; None accepts any cluster.

    Raises: See :func:`up`.
    """
    requested = _parsed(needed or {})
    fresh = {kind: max(count, DEFAULT_INSTANCES.get(kind, 0)) for kind, count in requested.items()}
    settings = Settings(fresh or DEFAULT_INSTANCES, sidecar=True)
    # Only a daemon that was killed leaves a record.
    if not (place := ClusterDirectory("local")).alive() and (killed := place.read()) is not None:
        settings = replace(killed.settings, instances=larger(killed.settings.instances, fresh), sidecar=True)
    return _up("local", needed=requested, settings=settings, wait=True)


def _up(name: str, *, needed: Mapping[str, int], settings: Settings, wait: bool) -> Cluster:
    """The running cluster, grown to what is `needed`, else a new one with these settings."""
    place = ClusterDirectory(name)
    with place.exclusively():
        if not place.alive():
            _start(place, settings)
        record = _running(name)
        cluster = _cluster(place, record)
        hint = f"End it first, with everything that runs in it: pathways-jupyter local down{_named(name)}"
        running = f"The embedded cluster {name!r} is already running"
        if settings.fast_heal and not cluster.fast_heal:
            raise LocalClusterError(f"{running} and does not heal fast.", hint=hint)
        if settings.bucket not in ("", record.settings.bucket):
            kept = record.settings.bucket or "its own directory"
            raise LocalClusterError(f"{running}, with its bucket in {kept}.", hint=hint)
        spare = {kind: count for kind, count in settings.spare.items() if count > cluster.spare.get(kind, 0)}
        if (short := cluster.lacks(needed)) or spare:
            control.ask(record.control, Order.GROW, timeout=_START_SECONDS, instances=short, spare=spare)
            cluster = _cluster(place, _running(name))
    if wait:
        cluster.wait()
    return cluster


def _parsed(instances: Mapping[str, int]) -> dict[str, int]:
    return {str(tpu.parse_instance_type(kind)): tpu.parse_count(count, kind) for kind, count in instances.items()}


def find(name: str = "local") -> Cluster | None:
    """The running cluster of that name; None when there is none that can be used, see :func:`absence`."""
    place = ClusterDirectory(name)
    record = place.read() if place.alive() else None
    return None if record is None else _cluster(place, record)


def absence(name: str = "local") -> LocalClusterError:
    """The error that explains why :func:`find` returns None, with a hint."""
    place = ClusterDirectory(name)
    if place.alive() and place.written():
        return LocalClusterError(
            f"The embedded cluster {name!r} was started by an incompatible version of pathways_jupyter.",
            hint=f"End it, with everything that runs in it: pathways-jupyter local down{_named(name)}",
        )
    return LocalClusterError(
        f"The embedded cluster {name!r} is not running.", hint=f"Start it: pathways-jupyter local up{_named(name)}"
    )


def down(name: str = "local") -> bool:
    """End a cluster and everything in it; return whether one was running, once all of it is gone."""
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


def _start(place: ClusterDirectory, settings: Settings) -> None:
    """Start the daemon and wait until it serves the API.

    Raises:
      ConfigError: A package that only the embedded cluster needs is not installed; nothing was changed.
      LocalClusterError: The daemon does not start.
    """
    require("local", "The embedded cluster", *_PACKAGES)
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
                    json.dumps(asdict(settings)),
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
    # Also closed when the caller is interrupted; the daemon then fails to report its start, and ends.
    with open(ready, encoding="utf-8") as pipe:
        # `starter` is only the daemon's parent, which ends at once: the daemon double-forks, so that the caller need
        # not reap it.
        starter.wait()
        answered, _, _ = select.select([pipe], [], [], _START_SECONDS)
        line = pipe.readline() if answered else ""
    answer: dict[str, Any] = json.loads(line) if line else {}
    if "port" in answer:
        return
    if not answered:
        answer["error"] = f"The embedded cluster did not start within {_START_SECONDS:g} s."
        place.kill()
    place.until_dead()
    log = place.path / "daemon.err"
    last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:] if log.exists() else []
    place.remove()
    raise LocalClusterError(
        answer.get("error") or f"The embedded cluster did not start: {''.join(last) or 'its daemon ended'}.",
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
        record.settings.instances,
        record.settings.sidecar,
        record.settings.fast_heal,
        spare=record.settings.spare,
    )
