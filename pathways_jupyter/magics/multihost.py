"""The magic ``%%multihost``, which runs a cell on many hosts; ``%pathways multihost`` manages such runs."""

from __future__ import annotations

from typing import Any

from IPython.core.magic import Magics, cell_magic, magics_class

from pathways_jupyter.commands.multihost import CELL
from pathways_jupyter.magics import completion, parser
from pathways_jupyter.magics.screen import Screen, shown


@magics_class
class MultihostMagics(Magics):  # type: ignore[misc]
    """The magics of one shell."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self._screen = Screen(shell)

    @cell_magic  # type: ignore[untyped-decorator]
    def multihost(self, line: str, cell: str) -> Any:
        """Run a cell, a shell script, on many hosts; see ``%%multihost --help``."""
        call = parser.parse(f"{CELL.name} {line}", {CELL.name: CELL})
        if call.help:
            from pathways_jupyter.render import help as picture

            return shown(picture.command(CELL, ""))
        from pathways_jupyter.actions import multihost

        multihost.start(self._screen, call.values, cell)
        return None


def matchers() -> list[Any]:
    """Tab completion for the cell magic; that of the line magic is ``%pathways``' own."""
    return [completion.matcher(CELL.name, {CELL.name: CELL}, command=CELL.name)]
