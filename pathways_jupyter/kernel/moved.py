"""A kernel's process that becomes another kernel's: here, or the one that stands for a kernel beside the chips.

The program of a kernel is replaced, and its process, its id, its connection file and so its front end stay. So a
notebook moves in every front end. What the new kernel does first travels in a variable of the environment.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from pathways_jupyter.base import interrupts

VARIABLE = "PATHWAYS_KERNEL_MOVED"
_FIRST = "--IPKernelApp.exec_lines"
"""The argument of a kernel that says what it does first."""
REFUSED, ADVICE = "This kernel has moved, and ends at this moment.", "Run the cell again."
"""The answer to cells of a kernel that leaves, and what to do."""
_ANSWER_SECONDS = 0.5
"""Time for the answers to what a kernel has read that leaves."""
_LAST_SECONDS = 5.0
"""Longest wait for the refusals to be on their way; usually a millisecond."""
leaves = False
"""True once this kernel ends, to go on as another."""


@dataclass(frozen=True)
class Moved:
    """The first things that a kernel does which has moved.

    Attributes:
      settings: Of ``pathways_jupyter.connect``.
      save: Name of the save with the notebook's variables.
      imports: What is imported for those that are in no save, by their names; see :func:`.imports`.
      origin: Command line of the kernel that has moved away from this machine; empty if it has not been here.
      failed: Why the kernel could not go on where it was to.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    save: str = ""
    imports: Mapping[str, Sequence[str]] = field(default_factory=dict)
    origin: Sequence[str] = ()
    failed: str = ""

    def to_json(self) -> str:
        """Return it as a string."""
        return json.dumps(vars(self))

    @classmethod
    def from_json(cls, value: str) -> Moved:
        """Invert :meth:`to_json`."""
        return cls(**json.loads(value))

    @property
    def line(self) -> str:
        """The code that the new kernel runs first."""
        return f'__import__("pathways_jupyter.magics.arrival", fromlist=["arrival"]).arrive({self.to_json()!r})'


def origin() -> Sequence[str]:
    """Return this kernel's command line, without what it has done first because it has moved itself."""
    return [sys.executable, *(each for each in sys.orig_argv[1:] if not each.startswith(_FIRST))]


def become_at_exit(argv: Sequence[str], moved: Moved) -> None:
    """Replace this kernel's program once its cell has been answered and its sockets are closed."""
    from ipykernel.kernelapp import IPKernelApp

    app = IPKernelApp.instance()

    def at_exit() -> None:
        _refuse_what_waits(app)
        app.close()
        try:
            os.execve(argv[0], list(argv), {**os.environ, VARIABLE: moved.to_json()})
        except OSError as error:
            _become(origin(), _without(moved, error))

    def exit_now() -> None:
        app.shell.exit_now = True

    def ended(_: object) -> None:
        # What it has read would be lost with it. So it reads no more, and answers that first.
        stream = app.kernel.shell_stream
        stream.io_loop.add_callback(stream.stop_on_recv)
        app.kernel.io_loop.call_later(_ANSWER_SECONDS, exit_now)

    # Before ipykernel's own, which removes the connection file.
    atexit.register(at_exit)
    leave(app.shell)
    app.shell.events.register("post_run_cell", ended)


def _refuse_what_waits(app: Any) -> None:
    """Answer what waits in the shell's socket, and close it before more comes: front ends keep that for the next one.

    They cannot be asked to keep it earlier: what they send between the last look and the end of the connection is lost.
    """
    import zmq

    stream, done = app.kernel.shell_stream, interrupts.InterruptibleEvent()

    def refuse() -> None:
        try:
            stream.flush(zmq.POLLOUT)
            while stream.socket.poll(0):
                # One that cannot be read has no answer, as ever.
                with contextlib.suppress(ValueError, TypeError):
                    _refuse(app, *app.session.recv(stream.socket))
            stream.close()
        finally:
            # Behind what front ends are shown, which that thread would drop when it is stopped.
            app.iopub_thread.schedule(done.set)

    # From ipykernel 7 on, a thread has the socket, and its loop still runs.
    if (thread := getattr(app, "shell_channel_thread", None)) is None:
        refuse()
    else:
        thread.io_loop.add_callback(refuse)
    done.wait(_LAST_SECONDS)


def _refuse(app: Any, identities: list[bytes], request: dict[str, Any]) -> None:
    kind, _, is_request = request["header"]["msg_type"].rpartition("_")
    content: dict[str, Any] = {"status": "aborted"}
    if kind == "execute":
        words = f"{REFUSED} {ADVICE}"
        error = {"ename": "KernelMoves", "evalue": words, "traceback": [f"KernelMoves: {words}"]}
        app.session.send(app.iopub_socket, "error", error, request)
        content = {"status": "error", **error, "execution_count": app.kernel.execution_count}
    if is_request == "request":
        app.session.send(app.kernel.shell_stream.socket, f"{kind}_reply", content, request, identities)
    app.session.send(app.iopub_socket, "status", {"execution_state": "idle"}, request)


def leave(shell: Any) -> None:
    """Run no other cell in this kernel: each is answered with the reason, until it has ended."""
    global leaves
    leaves = True
    shell.input_transformers_cleanup.append(lambda _lines: ["%pathways move\n"])


def return_to(moved: Moved, connection_file: str) -> None:
    """Become the kernel of this machine that has moved away, or an ordinary one.

    Raises:
      OSError: No kernel can be started here.
    """
    # An ignored signal stays ignored, and no child of the new program could be waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.pop(VARIABLE, None)
    ordinary = [sys.executable, "-m", "ipykernel_launcher", "-f", connection_file]
    try:
        _become(moved.origin or ordinary, dataclasses.replace(moved, origin=()))
    except OSError as error:
        _become(ordinary, _without(moved, error))


def _become(argv: Sequence[str], moved: Moved) -> NoReturn:
    os.execv(argv[0], [*argv, f"{_FIRST}={[moved.line]!r}"])


def _without(moved: Moved, error: OSError) -> Moved:
    """Return what a kernel does first that cannot go on as `moved` says: it says so, and where the variables are."""
    why = f"The kernel that was to go on with the notebook could not be started: {error}."
    said = f"{why} This one has none of its variables."
    return Moved({"gcs_bucket": moved.settings.get("gcs_bucket")}, moved.save, failed=said)
