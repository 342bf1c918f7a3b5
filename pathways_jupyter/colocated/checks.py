"""What is checked before anything is sent to a host, so that a mistake leaves no half-run cell behind."""

from __future__ import annotations

import ast
import functools
import inspect
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from pathways_jupyter.colocated.errors import CheckError, name_hosts

_IMAGE_VERSIONS = re.compile(r"-python_(?P<python>[0-9.]+)-jax_(?P<jax>[0-9.]+)")
_GUARDS = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


@dataclass(frozen=True)
class Difference:
    """One component whose version is not the same here and on hosts.

    Attributes:
      component: ``python``, ``jax``, ``jaxlib``, ...
      here: The version in this process.
      there: The version on the hosts.
      hosts: Their indices.
      severe: Whether code cannot be sent between the two.
    """

    component: str
    here: str
    there: str
    hosts: tuple[int, ...]
    severe: bool

    def __str__(self) -> str:
        return f"{self.component} {self.there} on {name_hosts(self.hosts)}, {self.here} here"


def differences(here: Mapping[str, str], there: Mapping[int, Mapping[str, str]]) -> list[Difference]:
    """Compares versions component by component.

    Args:
      here: Version by component, ``python`` among them.
      there: The same by host index; a component that a host does not name is not compared.

    Returns:
      Severe ones first: another minor version of Python, as functions travel as its byte code, and another minor
      version of JAX, whose parts have no format that outlives one.
    """
    found: dict[tuple[str, str], list[int]] = {}
    for index, versions in there.items():
        for component, version in versions.items():
            if component in here and version and version != here[component]:
                found.setdefault((component, version), []).append(index)
    listed = [
        Difference(name, here[name], version, tuple(indices), _severe(name, here[name], version))
        for (name, version), indices in found.items()
    ]
    return sorted(listed, key=lambda each: (not each.severe, each.component))


@functools.cache
def versions_here() -> dict[str, str]:
    """Versions of what takes part in a colocated call, in this process."""
    import platform
    from importlib import metadata

    found = {"python": platform.python_version()}
    for name in ("jax", "jaxlib", "numpy", "cloudpickle"):
        found[name] = metadata.version(name)
    return found


def image_versions(image: str) -> dict[str, str]:
    """The Python and JAX versions that a sidecar image's tag carries; empty when it carries none."""
    match = _IMAGE_VERSIONS.search(image)
    return match.groupdict() if match else {}


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


def require_packages(missing: Mapping[int, Sequence[str]]) -> None:
    """Fails when hosts miss packages.

    Args:
      missing: Names of modules by host index.

    Raises:
      CheckError: Some host misses some.
    """
    by_name: dict[str, list[int]] = {}
    for index, names in missing.items():
        for name in names:
            by_name.setdefault(name, []).append(index)
    if by_name:
        told = "; ".join(f"{name} is not installed on {name_hosts(indices)}" for name, indices in by_name.items())
        raise CheckError(
            f"{told}. Nothing was run.",
            hint="Add it to the sidecar: pathways-jupyter sidecar build --requirements requirements.txt",
        )


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


def _severe(component: str, here: str, there: str) -> bool:
    return component in {"python", "jax"} and here.split(".")[:2] != there.split(".")[:2]


def _guarded(statement: ast.Try) -> bool:
    for handler in statement.handlers:
        caught = handler.type
        names = caught.elts if isinstance(caught, ast.Tuple) else [caught]
        if caught is None or any(isinstance(name, ast.Name) and name.id in _GUARDS for name in names):
            return True
    return False
