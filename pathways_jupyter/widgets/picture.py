"""The sidebar's pictures in a notebook: one anywidget class that shows rows, and where it can be shown."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from pathways_jupyter.render.view import View

WIDGET_MIME = "application/vnd.jupyter.widget-view+json"


def can_show_widgets() -> bool:
    """Whether this code runs in a kernel, whose front end may show widgets; a terminal's may not."""
    try:
        from IPython.core.getipython import get_ipython
    except ImportError:
        return False
    return getattr(get_ipython(), "kernel", None) is not None


def bundle(view: View, widget: Any) -> dict[str, Any]:
    """`widget` for front ends that know widgets, HTML for the others, and text for terminals.

    Args:
      widget: None where widgets cannot be shown.
    """
    shown: dict[str, Any] = {**view._repr_mimebundle_()}
    if widget is not None:
        shown[WIDGET_MIME] = {"version_major": 2, "version_minor": 1, "model_id": widget.model_id}
    return shown


def make(picture: str, rows: Sequence[Mapping[str, Any]]) -> Any:
    """A widget that shows `rows`; assign its ``rows`` and ``note`` to show others, from any thread."""
    return _widget_class()(picture=picture, rows=list(rows))


@functools.cache
def _widget_class() -> Callable[..., Any]:
    """Made late: anywidget and traitlets are heavy, and a script needs neither."""
    import anywidget
    import traitlets

    built = files("pathways_jupyter.widgets") / "static"

    class Picture(anywidget.AnyWidget):
        """Rows as the sidebar draws them."""

        _esm = (built / "widgets.js").read_text(encoding="utf-8")
        _css = (built / "widgets.css").read_text(encoding="utf-8")
        picture = traitlets.Unicode().tag(sync=True)
        rows = traitlets.List().tag(sync=True)
        note = traitlets.Unicode().tag(sync=True)

    return Picture
