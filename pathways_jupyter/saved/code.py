"""Variables that are code and no data: an import finds what modules define, and cells define the rest."""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import sys
from collections.abc import Iterable, Mapping
from functools import reduce
from types import ModuleType
from typing import Any

Import = tuple[str, str]
"""A module, and the name in it with its dots; an empty name for the module itself."""


def is_code(value: object) -> bool:
    """Return whether `value` is a module, a class or a function, also one that ``jax.jit`` has made of it."""
    if isinstance(value, (ModuleType, type)):
        return True
    # Whatever wraps a function gets its name as an attribute of its own.
    return callable(value) and inspect.getattr_static(value, "__qualname__", None) is not None


def imports(variables: Mapping[str, Any]) -> dict[str, Import]:
    """Return what of these variables an import finds again, in any process that has the modules.

    Also objects such as ``random.randint`` and ``typing.Optional``, which know their modules.
    """
    found = ((name, _import_of(name, value)) for name, value in variables.items())
    return {name: each for name, each in found if each is not None}


def submodules(cells: Iterable[str]) -> set[str]:
    """Return what cells have imported by ``import package.module``, which sets a variable to the package only."""
    names = set[str]()
    for cell in cells:
        with contextlib.suppress(SyntaxError):
            statements = [each for each in ast.walk(ast.parse(cell)) if isinstance(each, ast.Import)]
            names |= {each.name for statement in statements for each in statement.names if not each.asname}
    return {name for name in names & sys.modules.keys() if "." in name}


def imported(what: Import) -> Any:
    """Return what is imported.

    Raises:
      Exception: It cannot be imported, or its module has failed.
    """
    module, name = what
    return _within(importlib.import_module(module), name)


def _within(module: Any, name: str) -> Any:
    return reduce(getattr, name.split(".") if name else (), module)


def _import_of(variable: str, value: Any) -> Import | None:
    if isinstance(value, ModuleType):
        places = [(value.__name__, "")]
    else:
        places = []
        # Any object may raise anything.
        with contextlib.suppress(Exception):
            names = (getattr(value, each, None) for each in ("__qualname__", "__name__"))
            places = [(str(value.__module__), str(each)) for each in (*filter(None, names), variable)]
    for module, name in places:
        # Not by an import, which may do anything: what a variable holds has been imported.
        if module != "__main__" and (there := sys.modules.get(module)) is not None:
            with contextlib.suppress(AttributeError):
                if _within(there, name) is value:
                    return module, name
    return None
