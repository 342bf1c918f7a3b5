"""Connection profiles, and the file that they are stored in."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from pathways_jupyter.render import html, text
from pathways_jupyter.render.view import View

_EXAMPLE = '[profiles.team]\ncontext = "my-gke"\ntpu = "tpuv6e:2x2=2"'


def view(profiles: Mapping[str, Mapping[str, Any]], path: Path) -> View:
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
