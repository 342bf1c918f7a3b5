"""Checks before anything is sent to a host, so that a mistake leaves no half-run cell behind."""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import pickle
import shlex
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import metadata
from types import FunctionType, ModuleType
from typing import Any

from pathways_jupyter.colocated import host_versions
from pathways_jupyter.colocated.channel import channel
from pathways_jupyter.colocated.errors import CheckError, name_hosts
from pathways_jupyter.colocated.host import Host
from pathways_jupyter.colocated.memory import MEMORY, Facts, ask
from pathways_jupyter.service.images import SIDECARS

_GUARDS = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}
_DEEPEST = 8
"""Through how many functions and objects the cause is searched of what cannot be pickled."""

Warn = Callable[[str], None]


def warn_caller(line: str) -> None:
    """Attribute a warning to the line that calls ``run_cell`` or a function on hosts."""
    warnings.warn(line, stacklevel=4)


def check(chosen: Sequence[Host], imported: Sequence[str], data: bytes, warn: Warn = warn_caller) -> None:
    """Compare versions, and check for the packages that a call needs.

    Args:
      chosen: The hosts of the call.
      imported: Modules that its source imports.
      data: The pickled part of the request.
      warn: Called with a line if versions differ but the call can run anyway; once for each host.

    Raises:
      CheckError: The call cannot run there.
    """
    facts_by_host = MEMORY.facts(chosen)
    modules = modules_needed(data) if data else set()
    there = {index: facts.versions for index, facts in facts_by_host.items()}
    different = host_versions.differences(host_versions.here(), there)
    if unreadable := host_versions.unreadable(different, modules):
        raise host_versions.refuse(different, unreadable)
    new = [index for index, each in there.items() if different and MEMORY.is_first(("versions", index, str(each)))]
    if new:
        warn(f"Versions differ: {'; '.join(map(str, different))}.")
    needed = {*imported, *modules}
    suspects = sorted({name for facts in facts_by_host.values() for name in needed if name not in facts.packages})
    if suspects:
        answers = ask(channel(chosen), {"op": "missing", "names": suspects})
        require_packages({answer.host.index: answer.head["missing"] for answer in answers}, facts_by_host)


def imported(source: str) -> list[str]:
    """Return the top-level names of the modules that a cell imports whatever happens.

    Imports under an ``if``, in a function, or in a ``try`` that catches their failure are left to the run.
    """
    names: dict[str, None] = {}

    def visit(body: Iterable[ast.stmt]) -> None:
        for statement in body:
            if isinstance(statement, ast.Import):
                names.update({alias.name.partition(".")[0]: None for alias in statement.names})
            elif isinstance(statement, ast.ImportFrom) and statement.level == 0 and statement.module:
                names[statement.module.partition(".")[0]] = None
            elif isinstance(statement, ast.With) or (isinstance(statement, ast.Try) and not guarded(statement)):
                visit(statement.body)

    def guarded(statement: ast.Try) -> bool:
        for handler in statement.handlers:
            caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
            if any(each is None or (isinstance(each, ast.Name) and each.id in _GUARDS) for each in caught):
                return True
        return False

    visit(ast.parse(source).body)
    return list(names)


def require_packages(missing: Mapping[int, Sequence[str]], facts: Mapping[int, Facts]) -> None:
    """Fail when hosts miss packages.

    Args:
      missing: Top-level names of modules that cannot be imported, by host index.
      facts: What is known of the hosts, by index.

    Raises:
      CheckError: Some host misses some.
    """
    by_name: dict[str, list[int]] = {}
    for index, names in missing.items():
        for name in names:
            by_name.setdefault(name, []).append(index)
    if by_name:
        listed = "; ".join(f"{name} is not installed on {name_hosts(indices)}" for name, indices in by_name.items())
        raise CheckError(f"{listed}. Nothing was run.", hint=install_hint(list(by_name), next(iter(facts.values()))))


def install_hint(modules: Sequence[str], facts: Facts) -> str:
    """Return what to do to have `modules` on hosts: not the same in the embedded cluster as on a real one."""
    # What gives the modules to this process, where it has them; else the same names.
    distributions = metadata.packages_distributions()
    packages = shlex.join(distributions.get(name, [name])[0] for name in modules)
    if facts.embedded:
        # The hosts of the embedded cluster run the Python that started the cluster, which may be another than this one.
        python = shlex.quote(facts.executable)
        return f"The hosts run {python} here: {python} -m pip install {packages}; then run the cell again."
    command = ["pathways-jupyter", "sidecar", "build", "--jax-version", facts.versions["jax"]]
    if facts.versions["jax"] not in SIDECARS:
        command += ["--base-image", "IMAGE"]
    return (
        f"Write {packages} to requirements.txt, build a sidecar image with it, and give it to the service's workers:"
        f" {shlex.join(command)}"
    )


def pickled(values: Any, *, names: Mapping[str, Any]) -> bytes:
    """Serialize `values` as JAX does for colocated Python.

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
    """Return the top-level names of the modules that a pickle imports when it is read."""
    modules: set[str] = set()

    class Finder(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            modules.add(module.partition(".")[0])
            if module.startswith("cloudpickle") and name == "subimport":
                return lambda name: modules.add(name.partition(".")[0])
            return _Anything

    # Where it cannot be read, what was found so far is still true; the hosts say the rest.
    with contextlib.suppress(Exception):
        Finder(io.BytesIO(data)).load()
    return modules


class _Anything:
    """Stands for whatever a pickle wants to make: nothing is run here."""

    def __new__(cls, *args: Any, **kwargs: Any) -> _Anything:
        return super().__new__(cls)

    def __call__(self, *args: Any, **kwargs: Any) -> _Anything:
        return self

    __setstate__ = __setitem__ = append = extend = add = __call__


def _culprit(names: Mapping[str, Any], serialize: Any, depth: int = 0) -> tuple[str, Exception] | None:
    """Return the path to the innermost part that cannot be pickled, and why it cannot."""
    for name, value in names.items():
        try:
            serialize(value)
        except Exception as error:
            inner = _culprit(_captured(value), serialize, depth + 1) if depth < _DEEPEST else None
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
    closure = inspect.getclosurevars(function)
    captured = {**closure.globals, **closure.nonlocals}
    return {name: each for name, each in captured.items() if not isinstance(each, ModuleType)}
