"""What connections are made with: profiles and the file that they are stored in, and variables to copy into a shell."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pathways_jupyter.render.parts import Part, code, line, muted, remarks, spaced, table, verbatim
from pathways_jupyter.render.view import View, drawn

_EXAMPLE = '[profiles.team]\ncontext = "my-gke"\ntpu = "tpuv6e:2x2=2"'


def profiles(profiles: Mapping[str, Mapping[str, Any]], path: Path) -> View:
    """Each profile with its settings; an example to copy when there is none."""
    if not profiles:
        return drawn({}, remarks([f"No profiles yet. Write {path}, for example:"]), spaced(verbatim(_EXAMPLE)))
    rows = [
        (code(name), " ".join(f"{key}={value}" for key, value in settings.items()))
        for name, settings in profiles.items()
    ]
    return drawn(profiles, table(("profile", "settings"), rows), remarks([f"Stored in {path}."]))


_SET = "Set for every process that this notebook starts, until it disconnects."
_SERVED = "A process with these variables is a second client of this session's proxy: same chips, own arrays."
_UNTRIED = (
    "A process with these variables is a second client of this session's proxy. Whether a real Pathways proxy serves "
    "two at a time is not known; pathways-jupyter run gives a program a proxy of its own."
)


def environment(variables: Mapping[str, str], *, shared: bool, embedded: bool) -> View:
    """The variables and what they do.

    Args:
      shared: They are set in this process's environment.
      embedded: The proxy is the embedded cluster's.
    """
    exports = [line(code(f"export {name}={shlex.quote(value)}")) for name, value in variables.items()]
    notes = [*([_SET] if shared else []), _SERVED if embedded else _UNTRIED]
    # In text, all of it can be pasted into a shell.
    return drawn(dict(variables), *exports, *(Part(f"# {each}", line(muted(each)).html) for each in notes))
