"""Variables that are code and no data: an import finds what modules define, and cells define the rest."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Mapping
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
    """Return what of these variables an import finds again, in any process that has the modules."""
    found = ((name, _import_of(value)) for name, value in variables.items() if is_code(value))
    return {name: each for name, each in found if each is not None}


def imported(what: Import) -> Any:
    """Return what is imported.

    Raises:
      Exception: It cannot be imported, or its module has failed.
    """
    module, name = what
    return reduce(getattr, name.split(".") if name else (), importlib.import_module(module))


def _import_of(value: Any) -> Import | None:
    if isinstance(value, ModuleType):
        where = value.__name__, ""
    else:
        where = str(getattr(value, "__module__", "")), str(value.__qualname__)
    # Not by an import, which may do anything: what a variable holds has been imported.
    module = sys.modules.get(where[0])
    if module is None or where[0] == "__main__":
        return None
    try:
        found: Any = reduce(getattr, where[1].split(".") if where[1] else (), module)
    except AttributeError:
        return None
    return where if found is value else None
