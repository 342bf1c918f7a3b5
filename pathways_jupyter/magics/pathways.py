"""The magic ``%pathways``: parse the line, call the layer below, show the result.

Errors propagate out of the cell; a :class:`~pathways_jupyter.base.errors.PathwaysError` renders itself as two or three
lines, and ``%pathways traceback`` shows the rest.
"""

from __future__ import annotations

import sys
from typing import Any

from IPython.core.magic import Magics, line_magic, magics_class

from pathways_jupyter.base.errors import PathwaysError, is_coloured
from pathways_jupyter.commands.magic import HELP, MAGIC
from pathways_jupyter.magics.notebook_session import Connection
from pathways_jupyter.magics.parser import Call, parse, unknown
from pathways_jupyter.magics.screen import Screen, shown

PROGRAM = "%pathways"
_UNAVAILABLE = "UNAVAILABLE"
"""Contained in JAX's errors about a proxy that it can no longer reach, among others."""
_ELSEWHERE = "non-PjRt-compatible client"
"""Contained in JAX's error when a program on the proxy's devices gets an array on a CPU device."""


@magics_class
class PathwaysMagics(Magics):  # type: ignore[misc]
    """The magics of one shell."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self._screen = Screen(shell)
        self.connection = Connection(shell, self._screen)
        self._error: BaseException | None = None
        self.shown_errors: tuple[type[BaseException], ...] = ()

    @line_magic  # type: ignore[untyped-decorator]
    def pathways(self, line: str) -> Any:
        """Connect this notebook to TPUs behind a Shared Pathways Service.

        %pathways connect --tpu tpuv6e:2x2=2   two slices of a service; jax.devices() are its TPUs from then on
        %pathways connect --local              the same on a small cluster on this machine
        %pathways status                       the session, its slices and its devices
        %pathways slices                       who holds which slices of the service
        %pathways doctor                       what is missing, and what to do about it
        %pathways disconnect                   free the slices, and put JAX back as it was

        %pathways help lists all commands, and %pathways COMMAND --help shows the options and examples of one.
        """
        call = parse(line, MAGIC)
        if call.help or call.command is HELP:
            return shown(self._help(call))
        if call.command.name == "traceback":
            return self._traceback()
        from pathways_jupyter.magics import notebook_commands

        return shown(notebook_commands.run(self.connection, call.command.name, call.values))

    def before_cell(self, info: Any) -> None:
        """Apply changes made to the session from outside, before the cell's code runs."""
        error_of_jax = getattr(sys.modules.get("jax.errors"), "JaxRuntimeError", None)
        if error_of_jax is not None and not self.shell.custom_exceptions:
            self.shown_errors = (error_of_jax,)
            self.shell.set_custom_exc(self.shown_errors, _show_error)
        self.connection.begin_cell()
        try:
            self.connection.settle()
        except PathwaysError as error:
            # The cell is the user's own code and must run whatever happened to the session.
            self._error = error
            self.connection.notify([str(error), error.hint])

    def after_cell(self, result: Any) -> None:
        """Keep the cell's error for ``traceback``, and show the notices that arrived while it ran."""
        error = getattr(result, "error_in_exec", None)
        if isinstance(error, PathwaysError) or hasattr(error, "_render_traceback_"):
            self._error = error
        self.connection.flush()
        if error is not None and _UNAVAILABLE in str(error):
            self.connection.explain_loss()
        if error is not None and _ELSEWHERE in str(error):
            self.connection.explain_elsewhere()
        if isinstance(error, KeyboardInterrupt):
            from pathways_jupyter.colocated import jax_calls

            if said := jax_calls.leave_behind(error):
                self.connection.notify([said])

    def _help(self, call: Call) -> Any:
        from pathways_jupyter.render import help as picture

        if call.group:
            members = {name: about for name, about in MAGIC.items() if name.startswith(f"{call.group} ")}
            return picture.overview(members, PROGRAM)
        wanted = call.values.get("command")
        if wanted is None and call.command is HELP:
            return picture.overview(MAGIC, PROGRAM)
        if wanted is not None and wanted not in MAGIC:
            raise unknown(wanted, MAGIC)
        return picture.command(MAGIC[wanted] if wanted else call.command, PROGRAM)

    def _traceback(self) -> None:
        error = self._error or getattr(sys, "last_value", None)
        if error is None:
            self._screen.line("No error so far.")
            return
        lines = self.shell.InteractiveTB.structured_traceback(type(error), error, error.__traceback__)
        said = self.shell.InteractiveTB.stb2text(lines)
        if not is_coloured():
            # IPython follows its own setting, but not NO_COLOR.
            from click import unstyle

            said = unstyle(said)
        self._screen.line(said)


def _show_error(
    shell: Any, kind: type[BaseException], error: BaseException, at: Any, tb_offset: int | None = None
) -> None:
    """Show an error of JAX as IPython does, but for one that this package can say in three lines."""
    from pathways_jupyter.colocated import jax_calls

    if lines := jax_calls.explain(error):
        error._render_traceback_ = lambda: lines  # type: ignore[attr-defined]
    shell.showtraceback((kind, error, at), tb_offset=tb_offset)
