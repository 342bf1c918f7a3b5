"""A session for one program: connect, run the program with the proxy in its environment, and remove the proxy.

This process owns the session as a kernel would, but imports no JAX. One handler receives all signals from the beginning
to the end: before the program runs they cancel the connection, then they are passed on to the program.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, Self

from pathways_jupyter.base import interrupts
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import ConfigError, SessionError
from pathways_jupyter.base.events import LOSSES, Event, EventKind, SessionState
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.session import client, native_environment, protocol
from pathways_jupyter.session.kernel import spawn
from pathways_jupyter.session.kernel.kernel_side import finish
from pathways_jupyter.session.kernel.supervisor_link import SupervisorLink
from pathways_jupyter.session.program.child import Child
from pathways_jupyter.session.protocol import Method
from pathways_jupyter.session.registry import SessionRecord
from pathways_jupyter.session.variables import variables

FORWARDED = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT),
    *(signal.SIGUSR1, signal.SIGUSR2),
)
"""The signals that are passed on to the program."""
SIGNALLED = 128
"""A shell's exit code for a program that a signal ended, less the signal's number."""
_COMMAND_CHARACTERS = 200
_UNUSED = (
    "The program used no TPU: it never connected to its proxy. If it should have, see whether it sets JAX_PLATFORMS or"
    " JAX_BACKEND_TARGET itself, and whether its Python has pathways_jupyter."
)
_NEWS = frozenset({EventKind.SLICE_DOWN, EventKind.SLICE_HEALED, EventKind.WARNING})


class Cancelled(SessionError):
    """A signal came before the program was started.

    Args:
      number: The signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"{signal.Signals(number).name} came before the program was started; it was not run.")
        self.number = number


class ProgramSession:
    """The session of one program, from entering the context to leaving it.

    Use it on the main thread: iterate over :meth:`events`, then call :meth:`run` once.

    Args:
      config: What to connect to. An embedded cluster must run already, and be named by its kubeconfig.
      command: The program and its arguments.
      tcp: Give the program a port on the loopback interface, which other users of this machine can reach too, instead
        of a unix socket in a private directory.

    Attributes:
      left: What could not be removed from the cluster; empty when nothing is left. Known after leaving the context.

    Raises:
      ConfigError: No slices are requested, there is no such program, it cannot be executed, or its JAX would end over
        the environment.
      KeyboardInterrupt: Interrupted.
      SessionError: The supervisor could not be started.
    """

    def __init__(self, config: ConnectConfig, command: Sequence[str], *, tcp: bool = False) -> None:
        if not config.instances and not config.job:
            raise ConfigError("No TPU slices were requested.", hint=advice("For example: {tpu:tpuv6e:2x2=2}."))
        if shutil.which(command[0]) is None:
            # A name without a folder is looked for on the PATH only.
            if os.path.dirname(command[0]) and os.path.isfile(command[0]):
                raise ConfigError(
                    f"The file {command[0]!r} cannot be executed.",
                    hint=f"Make it executable, chmod +x {shlex.quote(command[0])}, or name what runs it, for example "
                    f"-- python {shlex.quote(command[0])}.",
                )
            raise ConfigError(
                f"There is no program {command[0]!r}.", hint="Check its name and the PATH, or give its full path."
            )
        name = Path(command[0]).name
        # Of another program it is not known which Python it starts; most use this one's environment.
        python = command[0] if name.startswith("python") else sys.executable
        native_environment.check(python=python, is_kernel=False)
        self.left = ""
        self._command = tuple(command)
        # Nothing can take over the session of a program, so it must not outlive this process.
        self._config = replace(config, linger=0.0)
        self._port = 0
        if tcp:
            import portpicker

            # The supervisor listens on it a moment later; the record, which it writes before, has the port.
            self._port = portpicker.pick_unused_port()
        self._link: SupervisorLink | None = None
        self._request = 0
        self._record: SessionRecord | None = None
        self._child: Child | None = None
        self._signal = 0
        self._over = interrupts.InterruptibleEvent()
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in FORWARDED:
            # An ignored signal stays ignored, here and in the program: that is how nohup works.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._handlers[number] = signal.signal(number, self._received)
        try:
            self._link = spawn.supervisor()
            self._request = self._link.ask(
                Method.START,
                config=protocol.config_to_json(self._config),
                kernel_pid=os.getpid(),
                program=shlex.join(self._command)[:_COMMAND_CHARACTERS],
                tcp_port=self._port,
            )
            # It came when there was no link to close yet.
            if self._signal:
                self._link.close()
        except BaseException:
            self._restore_handlers()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        # First, so that the session's end is not reported as news to a program that has ended.
        self._over.set()
        # From here on a signal ends this process only: the supervisor removes the proxy anyway.
        self._restore_handlers()
        if self._link is not None:
            self.left = finish(self._link)

    def events(self) -> Iterator[Event]:
        """Yield the progress of connecting, until the program can be run.

        Raises:
          Cancelled: A signal came.
          CapacityError: The slices are taken, and the connection's ``wait`` is over.
          PathwaysError: Any other failure.
        """
        assert self._link is not None
        try:
            yield from self._link.watch(until=self._request)
            self._record = SessionRecord.from_json(self._link.answer(self._request))
        except SessionError:
            if self._signal:
                raise Cancelled(self._signal) from None
            raise

    @property
    def record(self) -> SessionRecord:
        """The session's record as of its connection."""
        assert self._record is not None
        return self._record

    def run(self, note: Callable[[str], None]) -> int:
        """Run the program to its end.

        Args:
          note: Called with each sentence about the session that its user should read, on another thread.

        Returns:
          Its exit code; 128 plus the signal's number when a signal ended it.

        Raises:
          Cancelled: A signal came before it was started.
          SessionError: It could not be started.
        """
        assert self._link is not None
        if self._signal:
            raise Cancelled(self._signal)
        threading.Thread(target=self._announce, args=(self._link, note), name="pathways-news", daemon=True).start()
        child = Child(self._command, {**os.environ, **variables(self.record)})
        self._child = child
        if self._signal:
            # It came while the program was being started, when there was nothing yet to pass it on to.
            child.send(self._signal)
        code = child.wait()
        self._over.set()
        if code == 0 and not self._has_used_proxy():
            note(_UNUSED)
        return code if code >= 0 else SIGNALLED - code

    def _has_used_proxy(self) -> bool:
        """Return whether anything was sent to the proxy; True also if that is not known."""
        assert self._link is not None
        if self.record.direct:
            return True
        try:
            answer = self._link.request(Method.STATUS, patience=client.ANSWER_SECONDS)
            return SessionRecord.from_json(answer).sent > 0
        except SessionError:
            return True

    def _received(self, number: int, frame: FrameType | None) -> None:
        if self._child is not None:
            self._child.send(number)
            return
        self._signal = self._signal or number
        if self._link is not None:
            # The supervisor takes this for the end of its owner: whatever this process waits for fails.
            self._link.close()

    def _restore_handlers(self) -> None:
        while self._handlers:
            signal.signal(*self._handlers.popitem())

    def _announce(self, link: SupervisorLink, note: Callable[[str], None]) -> None:
        """Report what happens to the session while the program runs; on a thread of its own."""
        for event in link.watch(link.count):
            if self._over.is_set():
                return
            if event.kind in LOSSES:
                note(f"The session is lost: {event.message} The program's next use of a TPU fails.")
            elif event.kind in _NEWS:
                note(event.message)
            elif event.data.get("state") == SessionState.CLOSING:
                note("The session is being ended from outside. The program's next use of a TPU fails.")
