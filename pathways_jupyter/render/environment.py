"""Environment variables, as lines to copy into a shell."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from pathways_jupyter.render import html
from pathways_jupyter.render.view import View

_SET = "Set for every process that this notebook starts, until it disconnects."
_SERVED = "A process with these variables is a second client of this session's proxy: same chips, own arrays."
_UNTRIED = (
    "A process with these variables is a second client of this session's proxy. Whether a real Pathways proxy serves "
    "two at a time is not known; pathways-jupyter run gives a program a proxy of its own."
)


def view(variables: Mapping[str, str], *, shared: bool, embedded: bool) -> View:
    """The variables and what they do.

    Args:
      shared: They are set in this process's environment.
      embedded: The proxy is the embedded cluster's.
    """
    lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    said = [_SET] if shared else []
    said.append(_SERVED if embedded else _UNTRIED)
    rich = [*(html.line(html.code(line)) for line in lines), *(html.line(html.muted(each)) for each in said)]
    return View(dict(variables), "\n".join([*lines, *(f"# {each}" for each in said)]), html.page(*rich))
