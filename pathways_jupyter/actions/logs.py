"""``logs``: of the resource manager, a worker, or a session's proxy or supervisor."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pathways_jupyter.actions import cluster
from pathways_jupyter.actions.shell import Action, Shell, Values, show_lines
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import SessionError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.text import parse_whole_number
from pathways_jupyter.kube import pods
from pathways_jupyter.service import jobs
from pathways_jupyter.service import logs as reading
from pathways_jupyter.session import clusters
from pathways_jupyter.session.registry import SessionRecord


def logs(shell: Shell, values: Values) -> None:
    """Show the last lines of a log, then, if it is followed, each new one as it comes.

    Raises:
      PathwaysError: There is no such session, service or pod, or the cluster could not be reached.
    """
    program, follow = values.get("program") or "proxy", bool(values.get("follow"))
    tail = parse_whole_number("--tail", values.get("tail") or 100)
    current, job = cluster.session_of(values), ""
    where: ConnectConfig | SessionRecord
    if program in {"proxy", "supervisor"}:
        named = values.get("session", "")
        record = where = current.record if current is not None and not named else cluster.find_session(named)
        if program == "supervisor":
            whole = Path(record.log).read_text(encoding="utf-8", errors="replace").splitlines()
            show_lines(shell, whole[max(0, len(whole) - tail) :], follow=False, pod="")
            return
        if job := record.pathways_job:
            proxy = clusters.stream(
                where,
                lambda client, namespace: jobs.log(
                    client, job, namespace=namespace, program="proxy", follow=follow, tail=tail
                ),
            )
            show_lines(shell, proxy, follow=follow, pod=record.pod)
            return
        job = record.job
    else:
        where = cluster.where(values)
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
        lambda client, namespace: reading.find(
            client, namespace, program, which=values.get("slice") or "", service=where.service, job=job
        ),
    )
    lines = clusters.stream(
        where,
        lambda client, namespace: pods.logs(
            client, found.pod, namespace=found.namespace, container=found.container, follow=follow, tail=tail
        ),
    )
    show_lines(shell, lines, follow=follow, pod=found.pod)


ACTIONS: Mapping[str, Action] = {"logs": logs}
