"""Public API of the cluster on this machine: start it, find it, end it.

Light to import: the cluster runs in a daemon process (:mod:`~pathways_jupyter.local.daemon`), which outlives the
process that started it and ends by itself when it is not used. Clients use it like any other cluster, through its
kubeconfig.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pathways_jupyter.base import slow_answers, tpu
from pathways_jupyter.base.errors import LocalClusterError
from pathways_jupyter.base.runtime_files import DEFAULT_CLUSTER
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.local import control
from pathways_jupyter.local.control import DaemonRequest
from pathways_jupyter.local.directory import CONTEXT, ClusterDirectory, DaemonRecord, named
from pathways_jupyter.local.settings import DEFAULT_IDLE_SECONDS, ClusterSettings, larger, most_hosts

DEFAULT_INSTANCES: Mapping[str, int] = {"tpuv6e:2x2": 2}

_ANSWER_SECONDS = 10.0
"""Longest time in which the daemon answers what needs no work."""
_READY_SECONDS = 120.0
_STOP_SECONDS = 20.0


@dataclass(frozen=True)
class LocalCluster:
    """A cluster that runs on this machine.

    Attributes:
      directory: Holds everything that it keeps on disk; when it ends, only its bucket stays there.
      kubeconfig: The administrator's; its only context is `context`.
      pid: The daemon's process.
      url: Where the API is served.
      settings: Its slices, and what it was started with.
    """

    name: str
    directory: Path
    kubeconfig: Path
    pid: int
    url: str
    settings: ClusterSettings
    context: str = CONTEXT

    def lacks(self, needed: Mapping[str, int]) -> dict[str, int]:
        """Return what of `needed` (slices per instance type) the cluster would have to grow to."""
        # Spare nodes count: a service may have been deployed on them, and connecting finds out whether it was.
        return {kind: count for kind, count in needed.items() if self.settings.nodes.get(kind, 0) < count}

    def restart_api(self, *, away: float = 0.0) -> None:
        """Restart the API server in place: connections drop; objects, controllers and pods go on.

        Args:
          away: Seconds for which it stays away.

        Raises:
          LocalClusterError: The cluster has ended.
        """
        control.ask(
            _running(self.name).control, DaemonRequest.RESTART_API, timeout=control.START_SECONDS + away, away=away
        )

    def wait(self, *, timeout: float = _READY_SECONDS) -> None:
        """Wait until every service has all its slices.

        Raises:
          LocalClusterError: The cluster ended while waiting, or is not ready in time.
        """
        try:
            control.ask(_running(self.name).control, DaemonRequest.WAIT, timeout=timeout)
        except TimeoutError:
            raise LocalClusterError(
                f"The embedded cluster's service is not ready after {timeout:g} s.",
                hint=f"List its pods: kubectl --kubeconfig {self.kubeconfig} get pods -A",
            ) from None

    def status(self) -> dict[str, Any]:
        """Return the daemon's report: ``ready``, ``busy``, ``work``, ``services``, ``failed`` and ``instances``.

        ``failed`` maps the name of each service that has failed for good to the reason. ``work`` is what runs besides
        the services: its ``kind`` and ``name``, and the ``session`` that it belongs to.

        Raises:
          LocalClusterError: The cluster has ended.
        """
        return control.ask(_running(self.name).control, DaemonRequest.STATUS, timeout=control.START_SECONDS)


@dataclass(frozen=True)
class Growth:
    """A running cluster, and what was added to it.

    Attributes:
      started: Whether the cluster itself was started.
      before: Its slices before it grew; None if it did not grow.
    """

    cluster: LocalCluster
    started: bool = False
    before: Mapping[str, int] | None = None

    def undo(self) -> str:
        """Remove what was added, unless it is in use; return what stays, as a sentence, or nothing."""
        if self.started:
            return "The embedded cluster, which was started, keeps running; it ends by itself when it is not used."
        if self.before is None:
            return ""
        with contextlib.suppress(LocalClusterError, TimeoutError):
            path, after = _running(self.cluster.name).control, dict(self.cluster.settings.instances)
            before = dict(self.before)
            answer = control.ask(path, DaemonRequest.SHRINK, timeout=_STOP_SECONDS, before=before, after=after)
            if answer["shrunk"]:
                return ""
        return "The embedded cluster keeps the slices that were added."


Permit = Callable[[str], bool]
"""Asks the user; False where the answer is no, or no question can be asked."""


def _never(question: str) -> bool:
    return False


Own = Callable[[Growth], None]
"""Receives what was started or added as soon as it is there, so that an Interrupt leaves nothing without an owner."""


def _keep(growth: Growth) -> None:
    """Leave what was added in the cluster, whatever comes next."""


class _TooLarge(Exception):
    """A cluster would have more hosts than this machine runs well; the argument is their number."""


def up(
    instances: Mapping[str, int] = DEFAULT_INSTANCES,
    *,
    name: str = DEFAULT_CLUSTER,
    idle_seconds: float = DEFAULT_IDLE_SECONDS,
    wait: bool = True,
    sidecar: bool = False,
    hollow: bool = False,
    port: int = 0,
    fast_heal: bool = False,
    spare: Mapping[str, int] | None = None,
    bucket: str = "",
    permit: Permit = _never,
) -> LocalCluster:
    """Start a cluster with these slices, or return the running one of that name, with slices added that it lacks.

    Args:
      wait: Return only when every slice is ready; else as soon as the API is served.
      permit: Called before the cluster gets more hosts than this machine runs well; hollow ones do not count.

    All others are its :class:`~pathways_jupyter.local.settings.ClusterSettings`.

    Raises:
      ConfigError: An instance type or a count cannot be used.
      LocalClusterError: The cluster cannot be started, would be too large, or one of that name runs with other
        settings.
    """
    requested = _parsed(instances)
    settings = ClusterSettings(requested, _parsed(spare or {}), idle_seconds, sidecar, hollow, port, fast_heal, bucket)
    grown = _up(name, needed=requested, settings=settings, permit=permit)
    if wait:
        grown.cluster.wait()
    return grown.cluster


def ensure(
    needed: Mapping[str, int] | None = None, *, free: bool = False, permit: Permit = _never, own: Own = _keep
) -> Growth:
    """Return the running cluster, with slices added that it lacks, else a new one whose hosts can run cells.

    A new cluster is at least as large as the default one, so that the next notebook finds a slice in it too. One that
    was killed is started again as it was: its sessions reconnect to what they had.

    Returns before its slices are ready, see :meth:`LocalCluster.wait`.

    Args:
      needed: Slices per instance type; None accepts any cluster.
      free: Do not count slices that sessions hold.
      permit: See :func:`up`.
      own: Called with what is returned, also where an Interrupt comes before the return; maybe several times.

    Raises: See :func:`up`.
    """
    requested = _parsed(needed or {})
    fresh = {kind: max(count, DEFAULT_INSTANCES.get(kind, 0)) for kind, count in requested.items()}
    settings = ClusterSettings(fresh or DEFAULT_INSTANCES, sidecar=True)
    # Only a daemon that was killed leaves a record.
    earlier = 0
    if not (directory := ClusterDirectory(DEFAULT_CLUSTER)).alive() and (killed := directory.read()) is not None:
        earlier = killed.settings.hosts
        settings = replace(killed.settings, instances=larger(killed.settings.instances, fresh), sidecar=True)
    return _up(DEFAULT_CLUSTER, needed=requested, settings=settings, free=free, earlier=earlier, permit=permit, own=own)


def _up(
    name: str,
    *,
    needed: Mapping[str, int],
    settings: ClusterSettings,
    permit: Permit,
    own: Own = _keep,
    free: bool = False,
    earlier: int = 0,
) -> Growth:
    """Return the running cluster, grown to what is `needed`, else a new one with these settings.

    Args:
      earlier: Hosts that the cluster had before it was killed.
    """
    try:
        return _grown(name, needed, settings, free, own, most=max(most_hosts(), earlier))
    except _TooLarge as large:
        # Asked without the lock, which others wait for.
        size = f"{large} hosts, and this machine runs about {most_hosts()} well"
        if not permit(f"The embedded cluster would have {size}. Start them?"):
            raise LocalClusterError(
                f"The embedded cluster would have {size}.", hint=advice("Ask for fewer slices, or add {yes}.")
            ) from None
        return _grown(name, needed, settings, free, own, most=None)


def _grown(
    name: str, needed: Mapping[str, int], settings: ClusterSettings, free: bool, own: Own, *, most: int | None
) -> Growth:
    """See :func:`_up`.

    Raises:
      _TooLarge: It would have more than `most` hosts; nothing was changed.
    """
    directory = ClusterDirectory(name)
    with directory.exclusively():
        started = not directory.alive()
        if started:
            if most is not None and settings.hosts > most and not settings.hollow:
                raise _TooLarge(settings.hosts)
            control.start(directory, settings)
        record = _running(name)
        cluster = _cluster(directory, record)
        if otherwise := _otherwise(settings, record):
            raise LocalClusterError(
                f"The embedded cluster {name!r} is already running{otherwise}.",
                hint=f"End it first, with everything that runs in it: pathways-jupyter local down{named(name)}",
            )
        has = record.settings
        spare = {kind: count for kind, count in settings.spare.items() if count > has.spare.get(kind, 0)}
        short = cluster.lacks(needed)
        # Holders of those on spare nodes are not known.
        missing = {kind: needed[kind] for kind in needed if kind in short or (free and kind in has.instances)}
        growth = Growth(cluster, started)
        own(growth)

        def own_added(answer: Mapping[str, Any]) -> None:
            nonlocal growth
            if hosts := answer.get("hosts"):
                raise _TooLarge(hosts)
            grown, before = _cluster(directory, _running(name)), answer["before"]
            growth = Growth(grown, started, before if before != grown.settings.instances else None)
            own(growth)

        if missing or spare:
            control.ask(
                record.control,
                DaemonRequest.GROW,
                timeout=control.START_SECONDS,
                own=own_added,
                instances=missing,
                spare=spare,
                free=free,
                unbounded=most is None or settings.hollow,
            )
        return growth


def _otherwise(settings: ClusterSettings, record: DaemonRecord) -> str:
    """Return the end of a sentence, by what a running cluster cannot become what is wanted; empty if it can."""
    has = record.settings
    if settings.fast_heal and not has.fast_heal:
        return " and does not heal fast"
    if settings.bucket not in ("", has.bucket):
        return f", with its bucket in {has.bucket or 'its own directory'}"
    if settings.port not in (0, record.port):
        return f", on port {record.port}"
    if settings.idle_seconds not in (DEFAULT_IDLE_SECONDS, has.idle_seconds):
        return f", and ends after {has.idle_seconds:g} s without use"
    return ""


def _parsed(instances: Mapping[str, int]) -> dict[str, int]:
    return {str(tpu.parse_instance_type(kind)): tpu.parse_count(count, kind) for kind, count in instances.items()}


def find(name: str = DEFAULT_CLUSTER) -> LocalCluster | None:
    """Return the running cluster of that name; None when there is none that can be used, see :func:`absence`."""
    directory = ClusterDirectory(name)
    record = directory.read() if directory.alive() else None
    return None if record is None else _cluster(directory, record)


def absence(name: str = DEFAULT_CLUSTER) -> LocalClusterError:
    """Return the error that explains why :func:`find` returns None, with a hint."""
    directory = ClusterDirectory(name)
    if directory.alive() and directory.written():
        return LocalClusterError(
            f"The embedded cluster {name!r} was started by an incompatible version of pathways_jupyter.",
            hint=f"End it, with everything that runs in it: pathways-jupyter local down{named(name)}",
        )
    return LocalClusterError(
        f"The embedded cluster {name!r} is not running.", hint=f"Start it: pathways-jupyter local up{named(name)}"
    )


def down(name: str = DEFAULT_CLUSTER) -> bool:
    """End a cluster and everything in it, its bucket too; return whether one was running, once all of it is gone."""
    directory = ClusterDirectory(name)
    with directory.exclusively():
        running = directory.alive()
        if running and (record := directory.read()) is not None:
            with contextlib.suppress(TimeoutError):
                control.stop(record.control, timeout=_STOP_SECONDS)
        directory.kill()
        directory.until_dead()
        directory.remove()
    return running


def _running(name: str) -> DaemonRecord:
    """Return the record of a cluster whose daemon answers.

    Raises:
      LocalClusterError: It is not running, or does not answer.
    """
    directory = ClusterDirectory(name)
    record = directory.read() if directory.alive() else None
    if record is None:
        raise absence(name)
    try:
        with slow_answers.waiting_for(f"the embedded cluster {name!r}"):
            control.ask(record.control, DaemonRequest.STATUS, timeout=_ANSWER_SECONDS)
    except TimeoutError:
        # What waits for slices would wait for as long as they may take.
        raise LocalClusterError(
            f"The embedded cluster {name!r} does not answer.",
            hint=f"Wait a moment: this machine may be busy. If its process was stopped, kill -CONT {record.pid} "
            f"continues it. Only pathways-jupyter local down{named(name)}, which ends everything on it, and then "
            f"local up{named(name)} start it anew.",
        ) from None
    return record


def _cluster(directory: ClusterDirectory, record: DaemonRecord) -> LocalCluster:
    url = f"https://127.0.0.1:{record.port}"
    return LocalCluster(directory.name, directory.path, directory.kubeconfig, record.pid, url, record.settings)
