"""The differences that a notebook meets in the pod's Python: its version, and those of what the notebook imports."""

from __future__ import annotations

import ast
import contextlib
import json
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from pathways_jupyter.base.text import some

_PYTHON = "python"
_MAGICS = ("%", "!", "?")
_MOST_CHARACTERS = 10_000_000


def imported(notebook: str) -> list[str]:
    """Return the packages that the cells of a notebook import, without Python's own and those of its folder."""
    path, names = Path(notebook), set[str]()
    if not notebook or not path.is_file():
        return []
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        cells = json.loads(path.read_text(encoding="utf-8")[:_MOST_CHARACTERS])["cells"]
        for source in ("".join(each["source"]) for each in cells if each["cell_type"] == "code"):
            lines = [each for each in source.splitlines() if not each.lstrip().startswith(_MAGICS)]
            # A cell of another language, or one that is being written.
            with contextlib.suppress(SyntaxError):
                names |= set(_imports(ast.parse("\n".join(lines))))
    here = {each.stem for each in path.parent.iterdir()}
    return sorted(names - sys.stdlib_module_names - here)


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name.partition(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def versions(packages: Sequence[str]) -> dict[str, str | None]:
    """Return the versions of packages in this Python, and its own; None for one that is not there, empty if unknown."""
    found: dict[str, str | None] = {_PYTHON: platform.python_version()}
    # It reads all that is installed.
    distributions = metadata.packages_distributions() if packages else {}
    for name in packages:
        found[name] = None
        # A package that is broken is not there.
        with contextlib.suppress(ImportError, ValueError):
            if find_spec(name) is not None:
                found[name] = ""
                found[name] = metadata.version(distributions[name][0]) if name in distributions else ""
    return found


def sentences(here: Mapping[str, str | None], there: Mapping[str, str | None]) -> str:
    """Return what is there in another version than here, or not at all; empty if nothing is."""
    missing = [name for name, version in there.items() if version is None and here.get(name) is not None]
    others = [
        f"{'Python' if name == _PYTHON else name} {version} (here {here[name]})"
        for name, version in there.items()
        if version and here.get(name) and _minor(version) != _minor(here[name])
    ]
    differs = f"In the pod: {some(others)}." if others else ""
    return " ".join(each for each in (differs, f"Not in the pod: {some(missing)}." if missing else "") if each)


def _minor(version: str | None) -> list[str]:
    """Return the first two numbers of a version: other differences are rarely met."""
    return (version or "").split(".")[:2]
