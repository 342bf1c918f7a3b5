"""``profile``: trace a session's chips, and sum the trace up."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pathways_jupyter.actions import cluster
from pathways_jupyter.actions.shell import Action, Shell, Values
from pathways_jupyter.base import interrupts, tasks
from pathways_jupyter.base.errors import SessionError
from pathways_jupyter.base.text import parse_seconds, parse_whole_number
from pathways_jupyter.profile import trace_files
from pathways_jupyter.render import profile as render
from pathways_jupyter.render.view import said
from pathways_jupyter.session import client, clusters
from pathways_jupyter.session.kernel import silenced_logs
from pathways_jupyter.session.kernel import trace as traces
from pathways_jupyter.session.kernel.storage import adopted, require_adopted
from pathways_jupyter.session.variables import ChildEnvironment
from pathways_jupyter.session.verdicts import SessionCommand, verdict

if TYPE_CHECKING:
    from pathways_jupyter.session.kernel.session import Session
    from pathways_jupyter.session.kernel.trace import Trace
    from pathways_jupyter.session.registry import SessionRecord

_SECONDS = 5.0
_MOST_SECONDS = 300.0
"""Longer traces have more events than can be read, and need more memory than hosts have to spare."""
_CONNECT_SECONDS = 10


def take(shell: Shell, values: Values) -> None:
    """Trace a session of this machine from outside, as a second client of its proxy.

    Raises:
      SessionError: There is no such session, its supervisor does not answer, or its proxy takes no trace.
    """
    # Its file says nothing of a supervisor that was stopped: JAX would wait for the tunnel without a word.
    record = client.now(cluster.find_session(values.get("session") or ""))
    verdict(record, SessionCommand.RUN).require()
    if record.place:
        raise SessionError(
            f"The proxy of session {record.id} is not reached from here: its kernel runs {record.place}.",
            hint="Trace it in its notebook, with the magic of the same name.",
        )
    seconds = parse_seconds("--seconds", values.get("seconds") or _SECONDS, most=_MOST_SECONDS)
    options = _options(values, clusters.bucket(record))
    options.check()
    # The client and what reads the bucket need them; this process has no other use for them.
    ChildEnvironment().share(record)
    # JAX's native code logs the end of the client's connection, with a stack.
    with silenced_logs.silenced():
        _take(shell, record, options, seconds)
        # It ends here: the client and its devices refer to each other.
        gc.collect()


def _take(shell: Shell, record: SessionRecord, options: traces.Options, seconds: float) -> None:
    from pathways_jupyter.session.kernel import jax_platform

    with traces.Trace(jax_platform.new_client(record.target, _CONNECT_SECONDS), options) as trace:
        shell.say(f"Tracing session {record.id} for {seconds:g} s.")
        with contextlib.suppress(KeyboardInterrupt):
            interrupts.InterruptibleEvent().wait(seconds)
        finish(shell, trace)


def finish(shell: Shell, trace: Trace) -> None:
    """Stop `trace`, and show what it says.

    Raises:
      PathwaysError: Its files could not be written or read.
      KeyboardInterrupt: It is stopped, but not shown.
    """
    _show(shell, "Waiting for the hosts to write the trace.", trace.location, trace.stop)


def show(shell: Shell, values: Values) -> None:
    """Sum up a trace that was taken before."""
    location = str(values["location"])
    trace_files.check(location)
    _show(shell, "Reading the trace.", location)


def _show(shell: Shell, first: str, location: str, before: Callable[[], None] | None = None) -> None:
    now = first
    with shell.live(lambda: said(now)) as live:

        def progress(sentence: str) -> None:
            nonlocal now
            now = sentence

        if not live.in_place:
            shell.say(first)
        if before is not None:
            before()
        with adopted(clusters.storage_of(location)):
            require_adopted(location)
            summary = tasks.abandonable(lambda: trace_files.summarize(location, progress), name="pathways-trace")
        live.finish(render.view(summary))


def of_session(session: Session, values: Values) -> Trace:
    """Return the trace of this process's session that a command's options ask for; it is not started."""
    options = _options(values, session.bucket)
    return session.profile(options.to, device=options.device, host=options.host)


def _options(values: Values, gcs_bucket: str) -> traces.Options:
    """Return what the options of a command ask for in a session with this bucket."""
    host = parse_whole_number("--host", values.get("host", traces.DEFAULT_HOST_LEVEL))
    return traces.Options(str(values.get("to") or traces.scratch(gcs_bucket)), str(values.get("device") or ""), host)


ACTIONS: Mapping[str, Action] = {"profile": take, "profile show": show}
