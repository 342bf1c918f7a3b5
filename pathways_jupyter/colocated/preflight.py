"""What is checked before anything is sent to a host, so that a mistake leaves no half-run cell behind."""

from __future__ import annotations

import ast
import inspect
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType, ModuleType
from typing import Any

from pathways_jupyter.colocated.errors import CheckError, name_hosts

_GUARDS = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


def imported(source: str) -> list[str]:
    """Top-level names of the modules that a cell imports whatever happens.

    Imports under an ``if``, in a function, or in a ``try`` that catches their failure are left to the run.
    """
    names: dict[str, None] = {}

    def visit(body: Iterable[ast.stmt]) -> None:
        for statement in body:
            if isinstance(statement, ast.Import):
                names.update({alias.name.partition(".")[0]: None for alias in statement.names})
            elif isinstance(statement, ast.ImportFrom) and statement.level == 0 and statement.module:
                names[statement.module.partition(".")[0]] = None
            elif isinstance(statement, ast.With) or (isinstance(statement, ast.Try) and not _guarded(statement)):
                visit(statement.body)

    visit(ast.parse(source).body)
    return list(names)


def require_packages(missing: Mapping[int, Sequence[str]], hint: Callable[[Sequence[str]], str]) -> None:
    """Fails when hosts miss packages.

    Args:
      missing: Names of modules by host index.
      hint: How to add these modules.

    Raises:
      CheckError: Some host misses some.
    """
    by_name: dict[str, list[int]] = {}
    for index, names in missing.items():
        for name in names:
            by_name.setdefault(name, []).append(index)
    if by_name:
        listed = "; ".join(f"{name} is not installed on {name_hosts(indices)}" for name, indices in by_name.items())
        raise CheckError(f"{listed}. Nothing was run.", hint=hint(list(by_name)))


def pickled(values: Any, *, names: Mapping[str, Any]) -> bytes:
    """Serializes `values` as JAX does for colocated Python.

    Args:
      values: What is to be sent.
      names: Its parts by name, to say which of them cannot be.

    Raises:
      CheckError: A part cannot be pickled; the message names it, what it belongs to, and why.
    """
    from jax.experimental.colocated_python import serialization

    try:
        return bytes(serialization._serialize(values))
    except Exception as error:
        path, reason = _culprit(names, serialization._serialize) or (", ".join(names), error)
        raise CheckError(
            f"Cannot be sent to the hosts: {path}: {str(reason).splitlines()[0]}. Nothing was run.",
            hint="Make it on the hosts, inside the cell or the function, instead.",
        ) from error


def modules_needed(data: bytes) -> set[str]:
    """Top-level names of the modules that a pickle imports when it is read."""
    import pickle

    found: set[str] = set()

    class Finder(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            found.add(module.partition(".")[0])
            if module.startswith("cloudpickle") and name == "subimport":
                return lambda wanted: found.add(wanted.partition(".")[0])
            return _Anything

    try:
        Finder(io.BytesIO(data)).load()
    except Exception:
        # What was found so far is still true; the hosts say the rest.
        return found
    return found


class _Anything:
    """Stands for whatever a pickle wants to make: nothing is run here."""

    def __new__(cls, *args: Any, **kwargs: Any) -> _Anything:
        return super().__new__(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __call__(self, *args: Any, **kwargs: Any) -> _Anything:
        return self

    def __setstate__(self, state: Any) -> None: ...

    def __setitem__(self, key: Any, value: Any) -> None: ...

    def __hash__(self) -> int:
        return id(self)

    def append(self, value: Any) -> None: ...

    def extend(self, values: Any) -> None: ...

    def add(self, value: Any) -> None: ...


def _culprit(names: Mapping[str, Any], serialize: Any, depth: int = 0) -> tuple[str, Exception] | None:
    for name, value in names.items():
        try:
            serialize(value)
        except Exception as error:
            inner = _culprit(_captured(value), serialize, depth + 1) if depth < 8 else None
            if inner is not None:
                return f"{inner[0]}, used by {name}", inner[1]
            return f"{name} ({type(value).__name__})", error
    return None


def _captured(value: Any) -> dict[str, Any]:
    if isinstance(value, type):
        return {name: each for name, each in vars(value).items() if isinstance(each, FunctionType)}
    if isinstance(value, Mapping):
        return {repr(key): each for key, each in value.items()}
    function = inspect.unwrap(value) if callable(value) else value
    if not isinstance(function, FunctionType):
        attributes = getattr(value, "__dict__", None)
        return dict(attributes) if isinstance(attributes, dict) else {}
    found = inspect.getclosurevars(function)
    captured = {**found.globals, **found.nonlocals}
    return {name: each for name, each in captured.items() if not isinstance(each, ModuleType)}


def _guarded(statement: ast.Try) -> bool:
    for handler in statement.handlers:
        caught = handler.type
        names = caught.elts if isinstance(caught, ast.Tuple) else [caught]
        if caught is None or any(isinstance(name, ast.Name) and name.id in _GUARDS for name in names):
            return True
    return False
