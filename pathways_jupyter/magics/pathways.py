"""The magics ``%pathways``, ``%%pathwaysjob`` and ``%%multihost``: parse the line, call an action, show the result.

Errors propagate out of the cell; a :class:`~pathways_jupyter.base.errors.PathwaysError` renders itself as two or three
lines, and ``%pathways traceback`` shows the rest.
"""

from __future__ import annotations

import ast
import contextlib
import os
import signal
import sys
import threading
import traceback
import types
from collections.abc import Mapping
from typing import Any

from IPython.core.magic import Magics, cell_magic, line_cell_magic, magics_class, no_var_expand

from pathways_jupyter.base import interrupts
from pathways_jupyter.base.errors import ConfigError, PathwaysError, chain, is_coloured
from pathways_jupyter.base.sentences import Face
from pathways_jupyter.commands.job import CELL as JOB_CELL
from pathways_jupyter.commands.multihost import CELL as MULTIHOST_CELL
from pathways_jupyter.commands.profile import CELL as PROFILE_CELL
from pathways_jupyter.commands.tables import CELLS, MAGIC
from pathways_jupyter.magics.notebook_session import GONE, NotebookSession
from pathways_jupyter.magics.parser import divide, run, run_cell
from pathways_jupyter.session.verdicts import SessionCommand

_PACKAGE = __name__.partition(".")[0]
_AGAIN_SECONDS = 0.01
_ELSEWHERE = "non-PjRt-compatible client"
"""Contained in JAX's error when a program on the proxy's devices gets an array on a CPU device."""


@magics_class
class PathwaysMagics(Magics):  # type: ignore[misc]
    """The magics of one shell."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self.notebook = NotebookSession(shell)
        self._error: BaseException | None = None
        self.shown_errors: tuple[type[BaseException], ...] = ()

    # IPython would replace $name and {name} also in a program's line.
    @line_cell_magic  # type: ignore[untyped-decorator]
    @no_var_expand  # type: ignore[untyped-decorator]
    def pathways(self, line: str, cell: str | None = None) -> Any:
        """Connect this notebook to TPUs behind a Shared Pathways Service.

        %pathways connect --tpu tpuv6e:2x2=2   two slices of a service; jax.devices() are its TPUs from then on
        %pathways connect --local              the same on a small cluster on this machine
        %pathways status                       the session, its slices and its devices
        %pathways slices                       who holds which slices of the service
        %pathways doctor                       what is missing, and what to do about it
        %pathways disconnect                   free the slices, and put JAX back as it was

        %pathways help lists all commands, and %pathways COMMAND --help shows the options and examples of one.
        """
        head, program = divide(line, MAGIC)
        # As deep as the code that calls IPython, which calls this.
        line = self.shell.var_expand(head, 2) + (f" -- {program}" if program else "")
        if cell is None:
            return run(line, MAGIC, "%pathways", self._run, cells=CELLS)
        name, _, options = line.lstrip().partition(" ")
        if name != "profile":
            raise ConfigError("Only profile takes a cell.", hint="%%pathways profile traces it; others have one %.")
        __tracebackhide__ = True
        try:
            return run_cell(options, PROFILE_CELL, lambda values: self._profile(values, cell))
        except BaseException as error:
            error.__traceback__ = self._of_code(error.__traceback__)
            raise

    def _of_code(self, at: types.TracebackType | None) -> types.TracebackType | None:
        """Return where in a traceback the user's code begins; the whole of one that has none."""
        begins = at
        while begins is not None and not self._is_code(begins.tb_frame.f_code.co_filename):
            begins = begins.tb_next
        return begins or at

    def _is_code(self, filename: str) -> bool:
        return self.shell.compile.format_code_name(filename) is not None

    def _profile(self, values: Mapping[str, Any], cell: str) -> None:
        from pathways_jupyter.actions import profile

        with profile.of_session(self.notebook.need(SessionCommand.RUN), values) as trace:
            try:
                with interrupts.raise_sigint():
                    _execute(self.shell, cell)
            finally:
                profile.finish(self.notebook.screen, trace)

    def _run(self, command: str, values: Mapping[str, Any]) -> Any:
        if command == "traceback":
            return self._traceback()
        from pathways_jupyter.magics import notebook_commands

        return notebook_commands.run(self.notebook, command, values)

    @cell_magic  # type: ignore[untyped-decorator]
    def pathwaysjob(self, line: str, cell: str) -> Any:
        """Create the PathwaysJob that the cell describes; see ``%%pathwaysjob --help``."""
        from pathways_jupyter.actions import job

        return run_cell(
            line, JOB_CELL, lambda values: job.create(self.notebook.screen, cell, values, source="the cell")
        )

    @cell_magic  # type: ignore[untyped-decorator]
    def multihost(self, line: str, cell: str) -> Any:
        """Run a cell, a shell script, on many hosts; see ``%%multihost --help``."""
        from pathways_jupyter.actions import multihost

        return run_cell(line, MULTIHOST_CELL, lambda values: multihost.start(self.notebook.screen, values, cell))

    def before_cell(self, info: Any) -> None:
        """Apply changes made to the session from outside, before the cell's code runs."""
        with interrupts.count_sigint() as counter:
            self._before_cell()
        if counter.take():
            # Raised here, it would be reported as an error of this hook, and the cell would run: so press again.
            threading.Timer(_AGAIN_SECONDS, os.kill, (os.getpid(), signal.SIGINT)).start()

    def _before_cell(self) -> None:
        if "jax.errors" in sys.modules and not self.shell.custom_exceptions:
            # JAX's own, and what it raises of an array that was deleted.
            self.shown_errors = (RuntimeError,)
            self.shell.set_custom_exc(self.shown_errors, self._show_error)
        self.notebook.begin_cell()
        try:
            self.notebook.settle()
        except PathwaysError as error:
            # The cell is the user's own code and must run whatever happened to the session.
            self._error = error
            self.notebook.notify([str(error), error.advice(error.face)])

    def _show_error(
        self, shell: Any, kind: type[BaseException], error: BaseException, at: Any, tb_offset: int | None = None
    ) -> None:
        """Show an error as IPython does, but for one of JAX that this package can say in three lines."""
        self._shorten(error)
        shell.showtraceback((kind, error, at), tb_offset=tb_offset)

    def print_array(self, array: Any, printer: Any, cycle: bool) -> None:
        """Print an array that is the value of a cell; IPython shows an error of that without :meth:`_show_error`."""
        try:
            lines = repr(array).splitlines()
        except self.shown_errors as error:
            self._shorten(error)
            self._error = error
            raise
        with printer.group():
            printer.text(lines[0])
            for each in lines[1:]:
                printer.break_()
                printer.text(each)

    def _shorten(self, error: BaseException) -> None:
        from pathways_jupyter.colocated.errors import WHOLE, explain_call

        lines = explain_call(error)
        if not lines and not isinstance(error, PathwaysError) and (said := self.notebook.misuse(str(error))):
            frames = traceback.extract_tb(error.__traceback__)
            own = [frame for frame in frames if self._is_code(frame.filename)]
            where = f" Line {own[-1].lineno}: {own[-1].line}" if own and own[-1].line else ""
            lines = [f"{type(error).__name__}: {said[0]}{where}", f"  {said[1]}", f"  {WHOLE}"]
        if lines:
            error._render_traceback_ = lambda: lines  # type: ignore[attr-defined]

    # An Interrupt after the cell has nothing left to end.
    @interrupts.count_sigint()
    def after_cell(self, result: Any) -> None:
        """Keep the cell's error for ``traceback``, and show the notices that arrived while it ran."""
        error = getattr(result, "error_in_exec", None)
        if isinstance(error, PathwaysError) or hasattr(error, "_render_traceback_"):
            self._error = error
            _let_go(error)
        self.notebook.end_cell()
        # One with lines of its own has said it.
        is_plain = error is not None and not hasattr(error, "_render_traceback_")
        if is_plain and any(each in str(error) for each in GONE):
            self.notebook.explain_loss(str(error))
        if error is not None and _ELSEWHERE in str(error):
            self.notebook.explain_elsewhere()
        if isinstance(error, KeyboardInterrupt):
            from pathways_jupyter.session.kernel import interrupted_calls

            if said := interrupted_calls.leave_behind(error):
                self.notebook.notify([said])
            # What a call in it made, such as programs for this proxy.
            _let_go(error)

    def _traceback(self) -> None:
        error = self._error or getattr(sys, "last_value", None)
        if error is None:
            self.notebook.screen.line("No error so far.")
            return
        _word_notes(error)
        lines = self.shell.InteractiveTB.structured_traceback(type(error), error, error.__traceback__)
        said = self.shell.InteractiveTB.stb2text(lines)
        if not is_coloured():
            # IPython follows its own setting, but not NO_COLOR.
            from click import unstyle

            said = unstyle(said)
        self.notebook.screen.line(said)


def _let_go(last: Any) -> None:
    """Free what this package's frames hold, such as the arrays of a suspend that failed: the error is kept."""
    errors, known = [last], set[int]()
    while errors:
        error = errors.pop()
        if id(error) in known:
            continue
        known.add(id(error))
        # Also a context that is not shown.
        errors += filter(None, (error.__cause__, error.__context__))
        for frame, _ in traceback.walk_tb(error.__traceback__):
            if str(frame.f_globals.get("__name__")).startswith(_PACKAGE):
                # One that still runs keeps what it needs.
                with contextlib.suppress(RuntimeError):
                    frame.clear()
                    # Until Python 3.13 a frame has a copy of its variables, which this brings up to date.
                    _ = frame.f_locals


def _word_notes(last: BaseException) -> None:
    """Word the hints of an error, and of what led to it, for this notebook; their notes are for a script."""
    for error in chain(last):
        if isinstance(error, PathwaysError):
            script, here = error.advice(Face.SCRIPT), error.advice(error.face)
            error.__notes__ = [here if note == script else note for note in getattr(error, "__notes__", ())]


def _execute(shell: Any, cell: str) -> None:
    """Run a cell's code and show the value of its last line, as ``%%time`` does; raises what the code raises.

    The shell's own run_cell() would show an error before the cell has ended, and the cell's end shows it again.
    """
    # With the running cell's number, by which a traceback and the view of a trace name its lines. From the history:
    # IPython 9.18 counts a cell before it runs, earlier versions afterwards.
    file = shell.compile.cache(cell, len(shell.history_manager.input_hist_raw) - 1)
    tree = shell.transform_ast(shell.compile.ast_parse(shell.transform_cell(cell), file))
    # As everywhere in IPython, a semicolon at the end says not to show the value.
    shows = tree.body and isinstance(tree.body[-1], ast.Expr) and not cell.rstrip().endswith(";")
    last = [tree.body.pop()] if shows else []
    exec(shell.compile(tree, file, "exec"), shell.user_ns)
    exec(shell.compile(ast.Interactive(last), file, "single"), shell.user_ns)
