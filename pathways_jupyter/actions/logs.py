"""``logs``: of the resource manager, a worker, or a session's proxy or supervisor."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from pathways_jupyter.actions import cluster
from pathways_jupyter.actions.shell import Action, Shell, Values, not_connected, show_lines
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import SessionError
from pathways_jupyter.base.events import SessionSlice
from pathways_jupyter.base.sentences import Face, advice
from pathways_jupyter.base.text import parse_whole_number
from pathways_jupyter.kube import pods
from pathways_jupyter.service import jobs, names
from pathways_jupyter.service import logs as reading
from pathways_jupyter.session import clusters, registry
from pathways_jupyter.session.registry import SessionRecord


def logs(shell: Shell, values: Values) -> None:
    """Show the last lines of a log, then, if it is followed, each new one as it comes.

    Raises:
      PathwaysError: There is no such session, service or pod, or the cluster could not be reached.
    """
    program, follow = values.get("program") or "proxy", bool(values.get("follow"))
    tail = parse_whole_number("--tail", values.get("tail") or 100)
    current, job, which = cluster.session_of(values), "", values.get("slice") or ""
    where: ConnectConfig | SessionRecord
    if program in {"proxy", "supervisor"}:
        named = values.get("session", "")
        record = where = current.record if current is not None and not named else _other(shell, program, named)
        if program == "supervisor":
            whole = Path(record.log).read_text(encoding="utf-8", errors="replace").splitlines()
            show_lines(shell, contextlib.nullcontext(whole[max(0, len(whole) - tail) :]), follow=False, pod="")
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
        job = record.job
    else:
        where = cluster.where(values)
        if program == "worker" and current is not None and not values.get("service"):
            which = _of_session(shell, current.record.slices, which)
        if not where.service and current is not None and (attached := current.record.pathways_job):
            raise SessionError(
                f"This notebook is attached to job {attached}, which is no service: its slices are its own.",
                hint=advice(
                    "{job_show:{attached}} shows them, and {job_logs:{attached} rm} prints the log of its "
                    "resource manager. {service:NAME} names a service.",
                    attached=attached,
                ),
            )
    found = clusters.ask(
        where,
        lambda client, namespace: reading.find(client, namespace, program, which=which, service=where.service, job=job),
    )
    lines = clusters.stream(
        where,
        lambda client, namespace: pods.logs(
            client, found.pod, namespace=found.namespace, container=found.container, follow=follow, tail=tail
        ),
    )
    show_lines(shell, lines, follow=follow, pod=found.pod)


def _other(shell: Shell, program: str, named: str) -> SessionRecord:
    """Return the session with this id; without one the only session of this machine, whose log is shown with its name.

    Raises:
      SessionError: There is no such session, or this is a notebook, to which no session of another belongs.
    """
    if shell.face is Face.NOTEBOOK and not named:
        others = [f"{each.id} ({each.owner})" for each in registry.sessions()]
        hint = advice("{logs:PROGRAM --session ID} shows the log of another: {others}.", others=", ".join(others))
        raise not_connected(hint if others else "")
    record = cluster.find_session(named)
    if not named:
        shell.say(f"The {program} of session {record.id} ({record.owner}):")
    return record


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


ACTIONS: Mapping[str, Action] = {"logs": logs}
