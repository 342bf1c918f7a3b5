"""A kernel's process that becomes another kernel's: here, or the one that stands for a kernel beside the chips.

The program of a kernel is replaced, and its process, its id, its connection file and so its front end stay. So a
notebook moves in every front end. What the new kernel does first travels in a variable of the environment.
"""

from __future__ import annotations

import atexit
import dataclasses
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

VARIABLE = "PATHWAYS_KERNEL_MOVED"
_FIRST = "--IPKernelApp.exec_lines"
"""The argument of a kernel that says what it does first."""
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
        app.close()
        try:
            os.execve(argv[0], list(argv), {**os.environ, VARIABLE: moved.to_json()})
        except OSError as error:
            _become(origin(), _without(moved, error))

    def ended(_: object) -> None:
        # ipykernel ends its loop a moment later.
        app.shell.exit_now = True

    # Before ipykernel's own, which removes the connection file.
    atexit.register(at_exit)
    leave(app.shell)
    app.shell.events.register("post_run_cell", ended)


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
    said = f"The kernel that was to go on with the notebook could not be started: {error}. This one has nothing of it."
    return Moved({"gcs_bucket": moved.settings.get("gcs_bucket")}, moved.save, failed=said)
