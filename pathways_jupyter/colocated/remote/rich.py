"""Rich displays made on a host: what an object offers a notebook, and matplotlib's figures."""

from __future__ import annotations

import io
import os
import sys
import warnings
from typing import Any

from . import streams

_METHODS = {
    "_repr_html_": "text/html",
    "_repr_markdown_": "text/markdown",
    "_repr_svg_": "image/svg+xml",
    "_repr_png_": "image/png",
    "_repr_jpeg_": "image/jpeg",
    "_repr_latex_": "text/latex",
}
_MAX_TEXT = 20_000


def bundle(value: Any) -> dict[str, Any]:
    """Return `value` by MIME type: text, and images as ``bytes``."""
    data: dict[str, Any] = {"text/plain": _text(value)}
    if isinstance(value, type):
        return data
    figure = sys.modules.get("matplotlib.figure")
    if figure is not None and isinstance(value, figure.Figure):
        drawn = io.BytesIO()
        value.savefig(drawn, format="png", bbox_inches="tight")
        data["image/png"] = drawn.getvalue()
        return data
    every = getattr(value, "_repr_mimebundle_", None)
    if callable(every):
        offered = every(include=None, exclude=None)
        offered = offered[0] if isinstance(offered, tuple) else offered
        data.update({kind: each for kind, each in (offered or {}).items() if isinstance(each, (str, bytes))})
    for name, kind in _METHODS.items():
        method = getattr(value, name, None)
        if callable(method) and kind not in data:
            offered = method()
            offered = offered[0] if isinstance(offered, tuple) else offered
            if isinstance(offered, (str, bytes)):
                data[kind] = offered
    return data


def display(*values: Any) -> None:
    """Show values in the notebook, where a cell calls it."""
    transcript = streams.current()
    for value in values:
        if transcript is not None:
            transcript.display(bundle(value))
        else:
            print(_text(value))


def prepare_figures() -> set[int]:
    """Make matplotlib draw without a screen; return the figures that are open already."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    warnings.filterwarnings("ignore", message="FigureCanvasAgg is non-interactive")
    pyplot = sys.modules.get("matplotlib.pyplot")
    return set(pyplot.get_fignums()) if pyplot is not None else set()


def show_figures(before: set[int], value: Any) -> None:
    """Display the figures that a call opened, and close them; `value` is shown by itself."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return
    for number in pyplot.get_fignums():
        if number not in before:
            figure = pyplot.figure(number)
            if figure is not value:
                display(figure)
            pyplot.close(figure)


def _text(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}... ({len(text):,} characters)"
