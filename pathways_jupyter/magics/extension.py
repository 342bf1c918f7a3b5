"""``%load_ext pathways_jupyter``: register magics, completion, displays and notices; unloading removes them.

Every notebook that loads the extension pays for this import, so it imports nothing that a first cell does not need.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from typing import Any

from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.commands import colocated, job, multihost, profile
from pathways_jupyter.commands.tables import MAGIC
from pathways_jupyter.magics import completion
from pathways_jupyter.magics.colocated import ColocatedMagics
from pathways_jupyter.magics.pathways import PathwaysMagics

_loaded: weakref.WeakKeyDictionary[Any, _Extension] = weakref.WeakKeyDictionary()


def _display_session(session: Any) -> dict[str, str]:
    from pathways_jupyter.magics.notebook_session import card_of

    return card_of(session)._repr_mimebundle_()


def _display_profile(summary: Any) -> dict[str, str]:
    from pathways_jupyter.render import profile

    return profile.view(summary)._repr_mimebundle_()


_DISPLAYS = {
    ("pathways_jupyter.session.kernel.session", "Session"): _display_session,
    ("pathways_jupyter.profile.summary", "Summary"): _display_profile,
}
"""Displays of objects by the name of their class, as importing it takes long."""
_ARRAY = ("jaxlib._jax", "ArrayImpl")


class _Extension:
    """Everything that was registered in one shell."""

    def __init__(self, shell: Any) -> None:
        self.magics = PathwaysMagics(shell)
        self.matchers = [
            completion.matcher("%pathways", MAGIC),
            completion.matcher("%colocated", colocated.LINE),
            completion.matcher("%%pathways", {"profile": profile.CELL}),
            *(completion.matcher(each.CELL.name, {each.CELL.name: each.CELL}) for each in (colocated, job, multihost)),
        ]
        self._colocated = ColocatedMagics(shell)
        shell.register_magics(self.magics, self._colocated)
        shell.Completer.custom_matchers.extend(self.matchers)
        for name, display in _DISPLAYS.items():
            shell.display_formatter.mimebundle_formatter.for_type_by_name(*name, display)
        shell.display_formatter.formatters["text/plain"].for_type_by_name(*_ARRAY, self.magics.print_array)
        shell.events.register("pre_run_cell", self.magics.before_cell)
        shell.events.register("post_run_cell", self.magics.after_cell)
        threading.Thread(target=_prepare, name="pathways-prepare", daemon=True).start()

    def undo(self, shell: Any) -> None:
        for name in _DISPLAYS:
            shell.display_formatter.mimebundle_formatter.pop(".".join(name), None)
        shell.display_formatter.formatters["text/plain"].pop(".".join(_ARRAY), None)
        shell.events.unregister("pre_run_cell", self.magics.before_cell)
        shell.events.unregister("post_run_cell", self.magics.after_cell)
        self.magics.notebook.close()
        if shell.custom_exceptions == self.magics.shown_errors:
            shell.set_custom_exc((), None)
        for matcher in self.matchers:
            shell.Completer.custom_matchers.remove(matcher)
        for magics in (self.magics, self._colocated):
            for kind, names in magics.magics.items():
                for name in names:
                    shell.magics_manager.magics[kind].pop(name, None)
        from pathways_jupyter.session.kernel import spawn

        spawn.discard()


def _prepare() -> None:
    """Start what a connection needs while the user is still typing; connecting reports any error again."""
    with contextlib.suppress(PathwaysError, OSError):
        from pathways_jupyter.session.kernel import spawn

        # The user may have been faster.
        spawn.prepare(first=True)


def load(shell: Any) -> _Extension:
    """Register everything in `shell`; no-op if it is loaded already."""
    if shell not in _loaded:
        _loaded[shell] = _Extension(shell)
    return _loaded[shell]


def unload(shell: Any) -> None:
    """Remove everything from `shell`."""
    extension = _loaded.pop(shell, None)
    if extension is not None:
        extension.undo(shell)
