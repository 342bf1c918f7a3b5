"""The names that cells leave on a host: one namespace for a session, a module as `__main__` is."""

from __future__ import annotations

import ast
import asyncio
import inspect
import linecache
import sys
import types
from collections import OrderedDict
from typing import Any

from . import rich

_MAX_SOURCES = 64
_TICK_SECONDS = 0.1
_spaces: dict[str, types.ModuleType] = {}
_sources: OrderedDict[str, None] = OrderedDict()


def space(session: str) -> dict[str, Any]:
    """Return the session's names.

    A host serves one session at a time, so the names of the one before are dropped when the next one comes.
    """
    module = _spaces.get(session)
    if module is None:
        import cloudpickle

        for other in list(_spaces):
            reset(other)
        module = types.ModuleType(f"colocated_{session}", "Names that %%colocated cells defined.")
        module.__dict__["display"] = rich.display
        sys.modules[module.__name__] = module
        if "" not in sys.path:
            # As in a notebook: a module in the working directory can be imported.
            sys.path.append("")
        _spaces[session] = module
        cloudpickle.register_pickle_by_value(module)
    return module.__dict__


def reset(session: str) -> None:
    """Forget the session's names."""
    module = _spaces.pop(session, None)
    if module is not None:
        sys.modules.pop(module.__name__, None)


def who(session: str) -> dict[str, str]:
    """Return the type of each of the session's names, with a shape where it has one."""
    module = _spaces.get(session)
    kinds: dict[str, str] = {}
    for name, value in sorted(module.__dict__.items() if module is not None else ()):
        if name.startswith("_") or value is rich.display:
            continue
        shape, kind = getattr(value, "shape", None), type(value).__name__
        if isinstance(shape, tuple) and not isinstance(value, (type, types.ModuleType)):
            kind += f" {getattr(value, 'dtype', '')}{list(shape)}"
        kinds[name] = kind
    return kinds


def run(session: str, source: str, filename: str) -> Any:
    """Run a cell in the session's namespace; return its last expression's value, None after a semicolon.

    As in a notebook, ``await`` works outside of functions; the cell then runs in an event loop of its own.
    """
    remember(source, filename)
    names = space(session)
    tree = ast.parse(source, filename)
    trees: list[tuple[Any, str]] = [(tree, "exec")]
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        trees.append((ast.Expression(tree.body.pop().value), "eval"))  # type: ignore[attr-defined]
    codes = [compile(each, filename, mode, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT) for each, mode in trees]
    if any(code.co_flags & inspect.CO_COROUTINE for code in codes):
        value = asyncio.run(_awaited(codes, names))
    else:
        for code in codes:
            value = eval(code, names)
    return None if source.rstrip().endswith(";") else value


async def _awaited(codes: list[types.CodeType], names: dict[str, Any]) -> Any:
    async def tick() -> None:
        # While the event loop blocks in C, an interrupt is not delivered: this wakes it regularly.
        while True:  # noqa: ASYNC110 - nothing is waited for
            await asyncio.sleep(_TICK_SECONDS)

    ticking = asyncio.ensure_future(tick())
    try:
        for code in codes:
            value = eval(code, names)
            if code.co_flags & inspect.CO_COROUTINE:
                value = await value
        return value
    finally:
        ticking.cancel()


def placed(function: Any, filename: str) -> Any:
    """Return `function`, which came in a pickle, with its own file for tracebacks: newer cloudpickles leave it out."""

    def named(code: types.CodeType) -> types.CodeType:
        inner = (named(each) if isinstance(each, types.CodeType) else each for each in code.co_consts)
        return code.replace(co_filename=filename, co_consts=tuple(inner))

    own = inspect.unwrap(getattr(function, "__func__", function))
    if isinstance(own, types.FunctionType) and own.__code__.co_filename == "<dynamic-code>":
        own.__code__ = named(own.__code__)
    return function


def remember(source: str, filename: str) -> None:
    """Keep source lines for tracebacks and warnings."""
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    _sources[filename] = None
    while len(_sources) > _MAX_SOURCES:
        linecache.cache.pop(_sources.popitem(last=False)[0], None)
