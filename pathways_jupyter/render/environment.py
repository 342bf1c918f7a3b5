"""The variables by which other processes share a session, to copy into a shell."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from pathways_jupyter.render.parts import Part, code, line, muted
from pathways_jupyter.render.view import View, drawn

_SET = "Set for every process that this notebook starts, until it disconnects."
_SERVED = "A process with these variables is a second client of this session's proxy: same chips, own arrays."
_UNTRIED = (
    "A process with these variables is a second client of this session's proxy. Whether a real Pathways proxy serves "
    "two at a time is not known; pathways-jupyter run gives a program a proxy of its own."
)


def view(variables: Mapping[str, str], *, shared: bool, embedded: bool) -> View:
    """Return the variables and what they do.

    Args:
      shared: They are set in this process's environment.
      embedded: The proxy is the embedded cluster's.
    """
    exports = [line(code(f"export {name}={shlex.quote(value)}")) for name, value in variables.items()]
    notes = [*([_SET] if shared else []), _SERVED if embedded else _UNTRIED]
    # In text, all of it can be pasted into a shell.
    return drawn(dict(variables), *exports, *(Part(f"# {each}", line(muted(each)).html) for each in notes))
