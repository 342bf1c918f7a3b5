"""``pathways-jupyter run``: any JAX program on TPUs, with a session of its own."""

from __future__ import annotations

import signal
import sys
import time
from typing import Any

import click

from pathways_jupyter.actions import cluster
from pathways_jupyter.base.events import Event, EventKind
from pathways_jupyter.cli.declared import completing, epilog
from pathways_jupyter.cli.terminal import TerminalShell
from pathways_jupyter.commands.declaration import Source
from pathways_jupyter.commands.parameters import explicit, parameters
from pathways_jupyter.commands.session import RUN
from pathways_jupyter.render import text
from pathways_jupyter.render.progress import Progress
from pathways_jupyter.session.registry import SessionRecord


@click.command(
    epilog=epilog(RUN),
    params=parameters(RUN, completing),
    # The program's own options are not this command's, also without the -- before them.
    context_settings={"allow_interspersed_args": False},
)
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED, shell_complete=completing(Source.FILES))
def run(program: tuple[str, ...], quiet: bool, tcp: bool, **values: Any) -> None:
    """Run PROGRAM with TPUs of its own: its JAX finds them by its environment, and it needs no change.

    The program gets JAX_PLATFORMS, JAX_BACKEND_TARGET and IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS. Its Python must
    have this package installed, or the program must call pathwaysutils.initialize(). Signals are passed on, and when
    the program ends, in whatever way, its proxy is removed. What is said here goes to standard error.

    Exit code: the program's, or 128 plus the number of the signal that ended it; 1 if it could not be run.
    """
    from pathways_jupyter.session.program.program_session import SIGNALLED, Cancelled, ProgramSession

    requested, progress, code = cluster.resolve(explicit(values)), _Connecting(quiet), SIGNALLED + signal.SIGINT
    session: ProgramSession | None = None
    try:
        if requested.local:
            progress.show(cluster.embedded_stage(requested))
        located = cluster.Located(requested, confirm=TerminalShell().confirm if sys.stdin.isatty() else None)
        with located as config:
            session = ProgramSession(config, program, tcp=tcp)
            with session:
                for event in session.events():
                    progress.add(event)
                located.keep()
                progress.done(session.record)
                code = session.run(_say)
    except Cancelled as error:
        _say(str(error))
        code = SIGNALLED + error.number
    except KeyboardInterrupt as error:
        _say(f"interrupted; {str(error) or 'what was created is being removed.'}")
    if session is not None and session.left:
        _say(session.left)
    sys.exit(code)


class _Connecting:
    """Progress on standard error, a line for each stage."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._progress = Progress()
        self._began = time.monotonic()
        self._said = ""

    def add(self, event: Event) -> None:
        """Show an event of the connecting session."""
        self._progress.add(event)
        if event.kind is EventKind.WARNING:
            _say(event.message)
        elif self._progress.steps:
            step = self._progress.steps[-1]
            self.show(f"{step.title}: {step.message}" if step.message else step.title)

    def show(self, text: str) -> None:
        """Show what is being done."""
        if not self._quiet and text != self._said:
            self._said = text
            _say(text)

    def done(self, record: SessionRecord) -> None:
        """Show that the program begins."""
        if record.tcp_port and not record.direct:
            _say(f"warning: other users of this machine can use these TPUs too, at {record.target}.")
        if not self._quiet:
            took = text.duration(time.monotonic() - self._began)
            _say(f"connected to {text.instances(record.instances)} in {took}, session {record.id}.")


def _say(text: str) -> None:
    # In one write, because the program writes to the same stream.
    sys.stderr.write(f"pathways-jupyter: {text}\n")
    sys.stderr.flush()
