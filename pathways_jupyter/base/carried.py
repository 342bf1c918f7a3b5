"""Carry a program to a machine that does not have this package: its sources, and the lines that load them.

Such a program is a few modules of one package that import each other and the standard library of Python 3.9, nothing
else. They travel as text, so that any Python there can compile them, and someone can read what arrives.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Iterable

LOADER = """
import sys, types
def load(package, sources):
    parent = sys.modules[package] = types.ModuleType(package)
    for name, text in sources:
        module = types.ModuleType(package + "." + name)
        sys.modules[module.__name__] = module
        exec(compile(text, module.__name__, "exec"), vars(module))
        setattr(parent, name, module)
    return module
"""
"""Defines ``load(package, sources)``, which returns the last module, on the other machine."""


def sources(package: str, names: Iterable[str]) -> list[tuple[str, str]]:
    """Return the names and sources of modules of `package`; each has to come after those that it imports."""
    here = importlib.resources.files(package)
    return [(name, here.joinpath(f"{name}.py").read_text(encoding="utf-8")) for name in names]
