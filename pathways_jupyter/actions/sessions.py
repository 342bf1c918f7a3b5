"""``sessions``: list and end the sessions of this machine; and ``clean``, which removes what sessions left behind."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pathways_jupyter.actions import cluster, saved
from pathways_jupyter.actions.shell import Action, Shell, Values
from pathways_jupyter.base import tasks
from pathways_jupyter.base.errors import ConfigError, LocalClusterError, PathwaysError
from pathways_jupyter.base.events import SessionState
from pathways_jupyter.base.sentences import worded
from pathways_jupyter.base.tones import Mark
from pathways_jupyter.kernel import places
from pathways_jupyter.kube.client import Client
from pathways_jupyter.render import sessions as render
from pathways_jupyter.render import text
from pathways_jupyter.render.view import View, preformatted, said
from pathways_jupyter.service import abandoned, discovery
from pathways_jupyter.session import client, clusters, orphan_files, registry, sweep
from pathways_jupyter.session.kernel import process
from pathways_jupyter.session.registry import SessionRecord
from pathways_jupyter.session.verdicts import Does, SessionCommand, verdict

_NOTICE_SECONDS, _SILENT_SECONDS = 2.0, 8.0
"""Time in which a supervisor answers unless it is stopped or very busy, and how much longer it is waited for."""
_SWEEP_SECONDS = 10.0


def sessions(shell: Shell, values: Values) -> View:
    """Return the sessions of all notebooks and scripts on this machine."""
    current = process.session()
    present = tasks.run(client.present(registry.sessions()))
    return render.table(present, mine=current.id if current is not None else "")


def disconnect(shell: Shell, values: Values) -> View:
    """End a session; its proxy, its Lease and the tunnel are removed when this returns.

    Raises:
      SessionError: There is no such session, its supervisor does not answer, which is asked nothing then, or something
        of it could not be removed.
    """
    record = _until_it_answers(shell, cluster.find_session(values.get("session", "")))
    answer = verdict(record, SessionCommand.DISCONNECT)
    if answer.does is Does.REFUSES:
        raise answer.error()
    tasks.run(_end(shell, record))
    # The record was read before the session ended.
    ended = dataclasses.replace(record, state=SessionState.CLOSED, state_since=time.time())
    if record.saved is not None:
        # What the command costs is that they have no session.
        return said(
            f"Session {record.id} has ended, with {record.saved.amount} saved. {worded(answer.hint, shell.face)}",
            dataclasses.asdict(ended),
        )
    proxy = f"its proxy {record.job}" if record.job else "its proxy"
    return said(f"Session {record.id} has ended; {proxy} is removed.", dataclasses.asdict(ended))


async def _end(shell: Shell, record: SessionRecord) -> None:
    slow = asyncio.get_running_loop().call_later(_NOTICE_SECONDS, shell.say, f"Ending session {record.id} …")
    try:
        await client.end(record, shell.say)
    finally:
        slow.cancel()


def _until_it_answers(shell: Shell, record: SessionRecord) -> SessionRecord:
    """Return a session as its supervisor knows it now, which may take a moment.

    Raises:
      SessionError: The supervisor does not answer.
    """
    now = client.now(record, patience=client.ANSWER_SECONDS if record.place else _NOTICE_SECONDS)
    if now.supervisor != registry.SILENT:
        return now
    shell.say(f"{verdict(now, SessionCommand.USE).sentence} Waiting for it, {_SILENT_SECONDS:.0f} s more at most.")
    now = client.now(record, patience=_SILENT_SECONDS)
    if now.supervisor == registry.SILENT:
        # In the words of the row; that it can be disconnected is so for its own kernel, which closes its end.
        raise verdict(now, SessionCommand.USE).error()
    return now


@dataclass(frozen=True)
class Cleaned:
    """An item that was removed, or (in a dry run) would be.

    Attributes:
      what: ``session`` for a session of this machine with its objects in the cluster, ``files`` for files of a session
        without a record, ``proxy`` for a Job found in the cluster, ``save`` for a part of one in the bucket.
      error: Why it could not be removed; empty when it could.
    """

    what: str
    name: str
    reason: str
    error: str = ""


def clean(shell: Shell, values: Values) -> View:
    """Remove proxies whose owner is gone, and files of sessions that ended.

    Raises:
      PathwaysError: Nothing was removed, and the cluster could not be reached.
    """
    dry_run = bool(values.get("dry_run"))
    done = list(_clean_machine(dry_run))
    skipped, failed = "", False

    async def sweep_cluster(client: Client, namespace: str) -> tuple[abandoned.Swept, ...]:
        # Of all users, as far as the credentials allow.
        swept = await abandoned.sweep(client, namespace, dry_run=dry_run, reclaim=abandoned.EVERY)
        if not swept:
            await discovery.require_namespace(client, namespace)
        return swept

    try:
        swept = clusters.ask(cluster.where(values, others=False), sweep_cluster)
        done += [Cleaned("proxy", each.job, each.reason, each.error) for each in swept]
    except PathwaysError as error:
        # No cluster is named and none configured, or the embedded one has ended with all in it: only this machine.
        harmless = isinstance(error, LocalClusterError) or (
            isinstance(error, ConfigError) and not set(values) - {"dry_run"}
        )
        if not harmless and not done:
            raise
        advice = "" if harmless else f" {error.advice(shell.face)}"
        skipped = f"\n{Mark.WARN if harmless else Mark.FAIL} No cluster was checked. {error}{advice}"
        failed = not harmless
    try:
        cut_short = saved.sweep(values, dry_run=dry_run)
        done += [Cleaned("save", each, "it was cut short more than a day ago") for each in cut_short]
    except PathwaysError as error:
        # Not a failure: who may use the cluster may have no access to the bucket from here, and the next save of that
        # name removes what is left of one.
        skipped += f"\n{Mark.WARN} Saves that were cut short were not looked for. {error}"
    if not done:
        return preformatted(f"{Mark.OK} Nothing to clean{' on this machine' if skipped else ''}.{skipped}", done)
    verb = "would be removed" if dry_run else "removed"
    rows = [
        (Mark.FAIL if each.error else Mark.OK, each.what, each.name, each.error or f"{verb}: {each.reason}")
        for each in done
    ]
    shown = preformatted(text.table(("", "", "", ""), rows) + skipped, done)
    return dataclasses.replace(shown, exit_code=int(failed or any(each.error for each in done)))


def _clean_machine(dry_run: bool) -> Iterator[Cleaned]:
    """Remove dead sessions of this machine with their objects in the cluster, and stray files."""
    for record in sweep.dead():
        error = ""
        if not dry_run:
            try:
                tasks.run(sweep.sweep(record, patience=_SWEEP_SECONDS))
            except PathwaysError as problem:
                error = str(problem)
        yield Cleaned("session", record.id, "its supervisor is gone", error)
    if not dry_run:
        # Files of kernels beside the chips.
        places.read()
    for left in orphan_files.find():
        error = ""
        if not dry_run:
            try:
                orphan_files.remove(left)
            except PathwaysError as problem:
                error = str(problem)
        yield Cleaned("files", left.session, "they belong to no running session", error)


ACTIONS: Mapping[str, Action] = {"sessions": sessions, "sessions disconnect": disconnect, "clean": clean}
