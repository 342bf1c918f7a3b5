"""``logs``: of the resource manager, a worker, or a session's proxy or supervisor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pathways_jupyter.actions import cluster
from pathways_jupyter.actions.shell import Action, Shell, Values, show_lines
from pathways_jupyter.base import tasks
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import ConfigError, ServiceError, SessionError
from pathways_jupyter.base.events import SessionSlice
from pathways_jupyter.base.sentences import Face, advice
from pathways_jupyter.base.text import count, parse_whole_number
from pathways_jupyter.kube import objects, pods
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import PODS, Object
from pathways_jupyter.multihost import output
from pathways_jupyter.service import discovery, jobs, names, status, untrusted
from pathways_jupyter.session import clusters, registry
from pathways_jupyter.session.registry import SessionRecord
from pathways_jupyter.session.verdicts import SessionCommand, verdict

RESOURCE_MANAGER, WORKER, PROXY, SUPERVISOR = "rm", "worker", "proxy", "supervisor"
"""Programs that write a log."""


def logs(shell: Shell, values: Values) -> None:
    """Show the last lines of a log, then, if it is followed, each new one as it comes.

    Raises:
      PathwaysError: There is no such session, service or pod, or the cluster could not be reached.
    """
    program, follow = values.get("program") or PROXY, bool(values.get("follow"))
    tail = parse_whole_number("--tail", values.get("tail") or 100)
    where: ConnectConfig | SessionRecord
    if program in {PROXY, SUPERVISOR}:
        record = where = _session(shell, values, program)
        if program == SUPERVISOR:
            log = _supervisor_log(record)
            written = tasks.iterate(lambda: output.lines(log, tail, lambda: follow and registry.is_alive(record)))
            show_lines(shell, written, follow=follow, pod="")
            return
        if job := record.pathways_job:
            proxy = clusters.stream(
                where,
                lambda client, namespace: jobs.log(
                    client, job, namespace=namespace, container=names.PROXY_CONTAINER, follow=follow, tail=tail
                ),
            )
            show_lines(shell, proxy, follow=follow, pod=record.pod)
            return
        source = clusters.ask(where, lambda client, namespace: _find_proxy(client, namespace, record.job))
    else:
        where, which = _service(shell, values, program)
        service = where.service
        source = clusters.ask(
            where, lambda client, namespace: find(client, namespace, program, which=which, service=service)
        )
    lines = clusters.stream(
        where,
        lambda client, namespace: pods.logs(
            client, source.pod, namespace=source.namespace, container=source.container, follow=follow, tail=tail
        ),
    )
    show_lines(shell, lines, follow=follow, pod=source.pod)


def _session(shell: Shell, values: Values, program: str) -> SessionRecord:
    """Return the session that a command names, else this process's, else the only one of this machine, with a remark.

    Raises:
      SessionError: There is no such session, or this is a notebook, to which no session of another belongs.
    """
    if (record := cluster.own_session(values)) is not None:
        return record
    if shell.face is Face.NOTEBOOK:
        others = [f"{each.id} ({each.owner})" for each in registry.sessions()]
        hint = advice("{logs:PROGRAM --session ID} shows the log of another: {others}.", others=", ".join(others))
        error = verdict(None, SessionCommand.RUN).error()
        raise SessionError(str(error), hint=hint) if others else error
    record = cluster.find_session()
    shell.say(f"The {program} of session {record.id} ({record.owner}):")
    return record


def _supervisor_log(record: SessionRecord) -> Path:
    """Return the file of a supervisor's log.

    Raises:
      SessionError: It is not on this machine.
    """
    path = Path(record.log)
    if not path.is_file():
        why = f"{path} does not exist" if record.is_here else f"it is on {record.host}"
        raise SessionError(
            f"The log of session {record.id}'s supervisor cannot be read: {why}.",
            hint=advice("{sessions} lists the sessions of this machine."),
        )
    return path


def _service(shell: Shell, values: Values, program: str) -> tuple[ConnectConfig, str]:
    """Return the service that a command is about, and the worker of it that is meant.

    Raises:
      SessionError: It would be that of a session which has none, or there is no such session.
    """
    where, session, which = cluster.where(values), cluster.own_session(values), values.get("slice") or ""
    if program == WORKER and session is not None and not values.get("service"):
        which = _of_session(shell, session.slices, which)
    if not where.service and session is not None and (job := session.pathways_job):
        raise SessionError(
            f"Session {session.id} is attached to job {job}, which is no service: its slices are its own.",
            hint=advice(
                "{job_show:{job}} shows them, and {job_logs:{job} rm} prints the log of its "
                "resource manager. {service:NAME} names a service.",
                job=job,
            ),
        )
    return where, which


def _of_session(shell: Shell, held: Sequence[SessionSlice], which: str) -> str:
    """Return the worker that `which` names, by default the first of the session; say if it is not the session's."""
    numbers = [each.number for each in held if each.number is not None]
    if not which:
        return str(min(numbers, default=0))
    # By the service's number alone: the logs of all its workers can be read.
    index = which.partition("-")[0]
    if numbers and index not in map(str, numbers):
        names = ", ".join(each.numbers for each in held)
        shell.say(f"Slice {index} of the service is not one of this session's, which are {names}.")
    return which


@dataclass(frozen=True)
class LogSource:
    """A container with a log."""

    pod: str
    container: str
    namespace: str


async def _find_proxy(client: Client, namespace: str, job: str) -> LogSource:
    """Find the log of the proxy of a session, by the name of its Job.

    Raises:
      ServiceError: It has no pod at the moment.
    """
    pod = await newest_pod(client, namespace, f"{names.JOB_NAME_LABEL}={job}", job=job)
    if pod is None:
        raise ServiceError(f"The proxy {job} has no pod.", hint=advice("See {status}."))
    return LogSource(pod["metadata"]["name"], names.PROXY_CONTAINER, namespace)


async def find(client: Client, namespace: str, program: str, *, which: str = "", service: str = "") -> LogSource:
    """Find the log of the resource manager or of a worker.

    Args:
      which: For a worker: its slice, or ``SLICE-HOST``.
      service: Name or address of the service; empty for the only one.

    Raises:
      ConfigError: `which` is no slice or host of the service.
      ServiceError: There is no such pod at the moment.
    """
    info = await discovery.find(client, namespace, service)
    if program == RESOURCE_MANAGER:
        labels = f"{names.JOBSET_NAME_LABEL}={info.name},{names.REPLICATED_JOB_LABEL}={names.HEAD_JOB}"
        pod = await newest_pod(client, info.namespace, labels)
        if pod is None:
            raise ServiceError(f"The resource manager of {info.name} has no pod.", hint=advice("{doctor} says why."))
        return LogSource(pod["metadata"]["name"], names.RESOURCE_MANAGER_CONTAINER, info.namespace)
    # The newest pod of a host is in the model of its slice, and without a pod the reason why.
    (model,) = await status.fetch(client, info.namespace, info.name, logs=False)
    index, _, host = (which or "0").partition("-")
    workers = {(str(each.index), str(worker.index)): worker for each in model.slices for worker in each.hosts}
    worker = workers.get((index, host or "0"))
    if worker is None:
        hosts = count(info.hosts_per_slice, "host")
        raise ConfigError(
            f"{info.name} has no worker {which}.",
            hint=f"Its slices are 0 to {len(model.slices) - 1}, with {hosts} each: SLICE-HOST.",
        )
    if not worker.pod:
        hint = "Try again when it is back."
        raise ServiceError(f"The worker of slice {index} has no pod: {worker.reason}.", hint=hint)
    return LogSource(worker.pod, names.WORKER_CONTAINER, info.namespace)


async def newest_pod(client: Client, namespace: str, labels: str, *, job: str | None = None) -> Object | None:
    """Return the newest pod with these labels that a JobSet, or the Job `job`, has made."""
    listed = await objects.list_(client, PODS, namespace=namespace, labels=labels)
    # Anyone who may create Jobs may give their pods these labels.
    real = (each for each in listed.items if untrusted.JobSetPosition.of(each) or untrusted.controller(each) == job)
    return objects.newest(real)


ACTIONS: Mapping[str, Action] = {"logs": logs}
