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

_KEPT_SOURCES = 64
_TICK_SECONDS = 0.1
_spaces: dict[str, types.ModuleType] = {}
_sources: OrderedDict[str, None] = OrderedDict()


def space(session: str) -> dict[str, Any]:
    """The session's names.

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
    """Forgets the session's names."""
    module = _spaces.pop(session, None)
    if module is not None:
        sys.modules.pop(module.__name__, None)


def who(session: str) -> dict[str, str]:
    """The session's names, with a word on each: its type, and a shape where it has one."""
    module = _spaces.get(session)
    found = {} if module is None else module.__dict__
    return {
        name: _kind(value)
        for name, value in sorted(found.items())
        if not name.startswith("_") and value is not rich.display
    }


def run(session: str, source: str, filename: str) -> Any:
    """Runs a cell in the session's namespace; returns its last expression's value, None after a semicolon.

    As in a notebook, ``await`` works outside of functions; the cell then runs in an event loop of its own.
    """
    remember(source, filename)
    names = space(session)
    tree = ast.parse(source, filename)
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr):
        tree.body.pop()
    codes = [_compiled(tree, filename, "exec")]
    if isinstance(last, ast.Expr):
        codes.append(_compiled(ast.Expression(last.value), filename, "eval"))
    if any(code.co_flags & inspect.CO_COROUTINE for code in codes):
        value = asyncio.run(_awaited(codes, names))
    else:
        for code in codes:
            value = eval(code, names)
    return None if source.rstrip().endswith(";") else value


def _compiled(tree: ast.AST, filename: str, mode: str) -> types.CodeType:
    return compile(tree, filename, mode, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)  # type: ignore[call-overload,no-any-return]


async def _awaited(codes: list[types.CodeType], names: dict[str, Any]) -> Any:
    ticking = asyncio.ensure_future(_tick())
    try:
        for code in codes:
            value = eval(code, names)
            if code.co_flags & inspect.CO_COROUTINE:
                value = await value
        return value
    finally:
        ticking.cancel()


async def _tick() -> None:
    """Wake the event loop regularly: while it blocks in C, an interrupt is not delivered."""
    while True:  # noqa: ASYNC110 - nothing is waited for
        await asyncio.sleep(_TICK_SECONDS)


def remember(source: str, filename: str) -> None:
    """Keeps source lines for tracebacks and warnings."""
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    _sources[filename] = None
    while len(_sources) > _KEPT_SOURCES:
        linecache.cache.pop(_sources.popitem(last=False)[0], None)


def _kind(value: Any) -> str:
    if isinstance(value, types.ModuleType):
        return "module"
    shape = getattr(value, "shape", None)
    described = type(value).__name__
    if isinstance(shape, tuple) and not isinstance(value, type):
        return f"{described} {getattr(value, 'dtype', '')}{list(shape)}"
    return described
