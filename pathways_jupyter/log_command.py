"""The command ``logs``, of which the magic and the terminal differ only in where their lines go."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pathways_jupyter import entry
from pathways_jupyter.config import ConnectConfig
from pathways_jupyter.session.registry import SessionRecord

_TAIL = 100


@dataclass(frozen=True)
class Log:
    """A log that is being read.

    Attributes:
      pod: Whose it is; empty for the supervisor's, which is a file on this machine.
      lines: Its last lines, then, if it is followed, each new one as it comes.
    """

    pod: str
    lines: Iterator[str]


def read(
    values: Mapping[str, Any], *, session: Callable[[], SessionRecord], cluster: Callable[[], ConnectConfig]
) -> Log:
    """Begin to read the log that a command line names.

    Args:
      values: The command's options; see :data:`pathways_jupyter.commands.session.LOGS`.
      session: Returns the session whose proxy's or supervisor's log is wanted.
      cluster: Returns where the service is of whose resource manager or worker the log is wanted.

    Raises:
      PathwaysError: There is no such session, service or pod, or the cluster could not be reached.
    """
    from pathways_jupyter.service import logs

    program, tail = values.get("program") or "proxy", entry.whole_number("--tail", values.get("tail") or _TAIL)
    where: ConnectConfig | SessionRecord
    if program in {"proxy", "supervisor"}:
        record = session()
        if program == "supervisor":
            whole = Path(record.log).read_text(encoding="utf-8", errors="replace").splitlines()
            return Log("", iter(whole[max(0, len(whole) - tail) :]))
        if record.pathways_job:
            return Log(record.pod, _of_job(record, follow=bool(values.get("follow")), tail=tail))
        where, service, job = record, record.service, record.job
    else:
        config = cluster()
        where, service, job = config, config.service, ""
    which, follow = values.get("slice") or "", bool(values.get("follow"))
    place = entry.ask(
        where, lambda client, namespace: logs.find(client, namespace, program, which=which, service=service, job=job)
    )
    lines = entry.stream(where, lambda client, namespace: logs.lines(client, place, follow=follow, tail=tail))
    return Log(place.pod, lines)


def _of_job(record: SessionRecord, *, follow: bool, tail: int) -> Iterator[str]:
    """The log of the proxy of the job that a session is attached to."""
    from pathways_jupyter.service import jobs

    return entry.stream(
        record,
        lambda client, namespace: jobs.log(
            client, record.pathways_job, namespace=namespace, program="proxy", follow=follow, tail=tail
        ),
    )
