"""What ``%load_ext pathways_jupyter`` does: magics, completion, displays and notices, each undone by unloading.

On the way of every notebook that loads it, so this imports nothing that a first cell does not need.
"""

from __future__ import annotations

import weakref
from typing import Any

from pathways_jupyter.commands import MAGIC
from pathways_jupyter.magics import completion
from pathways_jupyter.magics.pathways import PathwaysMagics

_loaded: weakref.WeakKeyDictionary[Any, _Extension] = weakref.WeakKeyDictionary()


class _Extension:
    """All that was put into one shell."""

    def __init__(self, shell: Any) -> None:
        self.magics = PathwaysMagics(shell)
        self.matcher = completion.matcher("%pathways", MAGIC)
        shell.register_magics(self.magics)
        shell.Completer.custom_matchers.append(self.matcher)
        shell.events.register("pre_run_cell", self.magics.before_cell)
        shell.events.register("post_run_cell", self.magics.after_cell)

    def undo(self, shell: Any) -> None:
        shell.events.unregister("pre_run_cell", self.magics.before_cell)
        shell.events.unregister("post_run_cell", self.magics.after_cell)
        shell.Completer.custom_matchers.remove(self.matcher)
        shell.magics_manager.magics["line"].pop("pathways", None)


def load(shell: Any) -> None:
    """Puts everything into `shell`; a second time changes nothing."""
    if shell not in _loaded:
        _loaded[shell] = _Extension(shell)


def unload(shell: Any) -> None:
    """Takes everything out again."""
    extension = _loaded.pop(shell, None)
    if extension is not None:
        extension.undo(shell)
