"""What connections are made with: profiles and the file that they are stored in, and variables to copy into a shell."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from pathways_jupyter.render import html, text
from pathways_jupyter.render.view import View

_EXAMPLE = '[profiles.team]\ncontext = "my-gke"\ntpu = "tpuv6e:2x2=2"'


def profiles(profiles: Mapping[str, Mapping[str, Any]], path: Path) -> View:
    """Each profile with its settings; an example to copy when there is none."""
    if not profiles:
        title = f"No profiles yet. Write {path}, for example:"
        rich = html.page(html.line(html.muted(title)), f"<pre>{escape(_EXAMPLE)}</pre>")
        return View({}, f"{title}\n\n{_EXAMPLE}", rich)
    rows = [
        (name, " ".join(f"{key}={value}" for key, value in settings.items())) for name, settings in profiles.items()
    ]
    where = f"Stored in {path}."
    return View(
        profiles,
        f"{text.table(('profile', 'settings'), rows)}\n{where}",
        html.page(
            html.table(("profile", "settings"), [(html.code(name), escape(settings)) for name, settings in rows]),
            html.line(html.muted(where)),
        ),
    )


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
    lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    said = [_SET] if shared else []
    said.append(_SERVED if embedded else _UNTRIED)
    rich = [*(html.line(html.code(line)) for line in lines), *(html.line(html.muted(each)) for each in said)]
    return View(dict(variables), "\n".join([*lines, *(f"# {each}" for each in said)]), html.page(*rich))
