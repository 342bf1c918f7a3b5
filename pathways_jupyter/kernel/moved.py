"""A kernel's process that becomes another kernel's: here, or the one that stands for a kernel beside the chips.

The program of a kernel is replaced, and its process, its id, its connection file and so its front end stay. So a
notebook moves in every front end. What the new kernel does first travels in a variable of the environment.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

VARIABLE = "PATHWAYS_KERNEL_MOVED"
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
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    save: str = ""
    imports: Mapping[str, Sequence[str]] = field(default_factory=dict)
    origin: Sequence[str] = ()

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


def become_at_exit(argv: Sequence[str], moved: Moved) -> None:
    """Replace this kernel's program once its cell has been answered and its sockets are closed."""
    from ipykernel.kernelapp import IPKernelApp

    app = IPKernelApp.instance()

    def at_exit() -> None:
        app.close()
        os.execve(argv[0], list(argv), {**os.environ, VARIABLE: moved.to_json()})

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
      OSError: It cannot be started.
    """
    argv = list(moved.origin) or [sys.executable, "-m", "ipykernel_launcher", "-f", connection_file]
    argv = [each for each in argv if not each.startswith("--IPKernelApp.exec_lines")]
    # An ignored signal stays ignored, and no child of the new program could be waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.pop(VARIABLE, None)
    os.execv(argv[0], [*argv, f"--IPKernelApp.exec_lines={[moved.line]!r}"])
