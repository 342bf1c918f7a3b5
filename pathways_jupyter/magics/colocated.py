"""The magics ``%%colocated``, which runs a cell on the TPU hosts, and ``%colocated``, which manages them."""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from IPython.core.magic import Magics, line_cell_magic, magics_class

from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.commands.colocated import CELL, LINE
from pathways_jupyter.magics import parser

if TYPE_CHECKING:
    from pathways_jupyter.colocated.results import CallResult
    from pathways_jupyter.colocated.show import Piece, Values
    from pathways_jupyter.render.view import View

_SPACED_COMMA = re.compile(r"\s*,\s*")


@magics_class
class ColocatedMagics(Magics):  # type: ignore[misc]
    """The magics of one shell."""

    @line_cell_magic  # type: ignore[untyped-decorator]
    def colocated(self, line: str, cell: str | None = None) -> Any:
        """Run a cell on TPU hosts; see ``%%colocated --help``."""
        if cell is None:
            return parser.run(
                line, LINE, "%colocated", lambda command, values: _COMMANDS[command](values), cells=[CELL]
            )
        # `--in x, y` is one list.
        return parser.run_cell(_SPACED_COMMA.sub(",", line), CELL, lambda values: self._cell(values, cell))

    def _cell(self, values: Mapping[str, Any], cell: str) -> Values | None:
        from pathways_jupyter.colocated import cell_run, live_output, show, trees
        from pathways_jupyter.colocated.results import Interrupted

        names = _names(values.get("inputs", ()))
        absent = [name for name in names if name not in self.shell.user_ns]
        if absent:
            raise ConfigError(
                f"--in names {', '.join(absent)}, which this notebook does not have.",
                hint="Run the cell that defines it first, or leave it out.",
            )
        quiet = bool(values.get("quiet"))
        follower = live_output.LogFollower(_write) if not quiet and not values.get("collapse") else None

        def shown(result: CallResult) -> None:
            already = follower.shown if follower else {}
            for piece in show.output(result, shown=already, quiet=quiet, collapse=bool(values.get("collapse"))):
                self._show(piece)

        try:
            result = cell_run.run_cell(
                cell,
                inputs={name: self.shell.user_ns[name] for name in names},
                outputs=_names(values.get("outputs", ())),
                slices=values.get("slices"),
                hosts=values.get("hosts"),
                once=bool(values.get("once")),
                on_cpu=bool(values.get("on_cpu")),
                unpickle=values.get("unpickle") or None,
                follow=follower.start if follower else None,
                warn=_warn,
            )
        except Interrupted as stopped:
            if stopped.result is not None:
                shown(stopped.result)
            raise
        shown(result)
        error = result.error()
        if error is not None:
            raise error
        self.shell.push(dict(result.outputs))
        for name, output in result.outputs.items():
            if isinstance(output, trees.PerHost):
                indices = ", ".join(f"{name}[{index}]" for index in output)
                _warn(f"{name} is not the same on all hosts; it holds each host's value: {indices}.")
        last = show.values(result)
        if last is not None and last.rich:
            for piece in last.pieces():
                self._show(piece)
            return None
        return last

    def _show(self, piece: Piece) -> None:
        if piece.stream:
            _write(piece.stream, piece.text)
            return
        from IPython.display import display

        # MIME data as Jupyter's messages carry it.
        encoded = {
            kind: base64.b64encode(value).decode() if isinstance(value, bytes) else value
            for kind, value in piece.data.items()
        }
        display(encoded, raw=True)


_written_last = [""]


def _write(stream: str, line: str) -> None:
    # Not flushed line by line: a kernel would send one message for each line. Without a flush it sends what has
    # accumulated a few times a second, each stream separately, so flush when the stream changes to keep the order.
    if _written_last[0] != stream:
        sys.stdout.flush()
        sys.stderr.flush()
        _written_last[0] = stream
    (sys.stderr if stream == "stderr" else sys.stdout).write(line)


def _warn(line: str) -> None:
    _write("stderr", f"{line}\n")


def _names(lists: Sequence[str]) -> list[str]:
    return [name.strip() for text in lists for name in text.split(",") if name.strip()]


def _table(value: Any, headers: tuple[str, ...], rows: Sequence[tuple[str, ...]], *, empty: str) -> View:
    from pathways_jupyter.render.parts import remarks, table
    from pathways_jupyter.render.view import drawn

    return drawn(value, table(headers, rows) if rows else remarks([empty]))


def _who(values: Mapping[str, Any]) -> View:
    from pathways_jupyter.colocated.errors import name_hosts
    from pathways_jupyter.colocated.memory import who

    variables = who(slices=values.get("slices"), hosts=values.get("hosts"))
    where: dict[tuple[str, str], list[int]] = {}
    for index, names in variables.items():
        for each in names.items():
            where.setdefault(each, []).append(index)
    rows = [(name, kind, name_hosts(indices)) for (name, kind), indices in sorted(where.items())]
    return _table(variables, ("name", "type", "on"), rows, empty="No names are defined on the hosts.")


def _reset(values: Mapping[str, Any]) -> None:
    from pathways_jupyter.colocated.memory import reset

    reset(slices=values.get("slices"), hosts=values.get("hosts"))


def _restart(values: Mapping[str, Any]) -> View:
    from pathways_jupyter.colocated.errors import name_hosts
    from pathways_jupyter.colocated.memory import restart
    from pathways_jupyter.render import arrays

    restarted = restart(slices=values.get("slices"), hosts=values.get("hosts"))
    indices = name_hosts([host.index for host in restarted])
    return arrays.notes([f"{indices} restarted; names of earlier cells are gone there."])


def _hosts(values: Mapping[str, Any]) -> View:
    from pathways_jupyter.colocated.errors import name_hosts
    from pathways_jupyter.colocated.host import choose, hosts
    from pathways_jupyter.colocated.memory import MEMORY
    from pathways_jupyter.render.parts import remarks, table
    from pathways_jupyter.render.view import drawn
    from pathways_jupyter.session.kernel import process

    chosen = choose(hosts(), slices=values.get("slices"), hosts=values.get("hosts"))
    facts_by_host, slices = MEMORY.facts(chosen, fresh=True), process.slice_numbers()
    rows, programs = [], dict[str, list[int]]()
    for host in chosen:
        facts = facts_by_host[host.index]
        number = slices.get(host.slice, str(host.slice))
        rows.append((str(host.index), number, str(len(host.chips)), f"{facts.hostname} ({facts.pid})", facts.directory))
        program = f"Python {facts.versions['python']}, JAX {facts.versions['jax']}: {facts.executable}"
        programs.setdefault(program, []).append(host.index)
    # Most often the same on all.
    notes = [f"{name_hosts(indices)}: {program}" for program, indices in programs.items()]
    return drawn(facts_by_host, table(("host", "slice", "chips", "name (process)", "directory"), rows), remarks(notes))


_COMMANDS: Mapping[str, Callable[[Mapping[str, Any]], View | None]] = {
    "hosts": _hosts,
    "who": _who,
    "reset": _reset,
    "restart": _restart,
}
