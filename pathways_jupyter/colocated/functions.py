"""Functions and classes on hosts, for scripts: called like local ones, with what they print shown here.

Arguments and results are pytrees. JAX arrays travel as arrays, moved between chips and the CPU devices beside them with
their sharding kept. Everything else is pickled on its way to the hosts; what comes back is read as
:mod:`pathways_jupyter.colocated.plain` does.
"""

from __future__ import annotations

import inspect
import sys
import uuid
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from pathways_jupyter.colocated import array_moves, cell_run, plain, preflight, results, show, trees
from pathways_jupyter.colocated.channel import Answer
from pathways_jupyter.colocated.errors import ColocatedError, name_hosts
from pathways_jupyter.colocated.host import Host
from pathways_jupyter.colocated.host_classes import FirstClasses
from pathways_jupyter.colocated.memory import MEMORY
from pathways_jupyter.colocated.results import Interrupted

if TYPE_CHECKING:
    import jax

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Where:
    """Where a function runs, and what becomes of its results.

    Attributes:
      slices: Only hosts of these slices; default: the hosts of the arguments' arrays, or all.
      hosts: Only these hosts.
      once: Only the first of them.
      on_cpu: Leave resulting arrays on CPU devices; default: they go to the chips beside them.
      quiet: Do not show what hosts print.
      unpickle: Trust the hosts to run code here: objects of any kind come back; default: the session's setting.
    """

    slices: str | Iterable[int] | None = None
    hosts: str | Iterable[int] | None = None
    once: bool = False
    on_cpu: bool = False
    quiet: bool = False
    unpickle: bool | None = None


class Function(Generic[P, R]):
    """A function that runs on hosts; made by :func:`function`."""

    def __init__(self, fun: Callable[P, R], where: Where) -> None:
        self.__name__ = getattr(fun, "__name__", type(fun).__name__)
        self.__doc__ = fun.__doc__
        self.__wrapped__ = fun
        self._where = where

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls it on every host, and returns the one result: a pytree whose arrays are global.

        Raises:
          HostError: It raised on some host.
          ColocatedError: Values other than arrays are not the same on all hosts; see :meth:`on_each`.
          CheckError: It, or an argument, cannot be sent; nothing ran.
        """
        result: R = _one(self.on_each(*args, **kwargs), self.__name__)
        return result

    def on_each(self, *args: P.args, **kwargs: P.kwargs) -> dict[int, R]:
        """Calls it on every host, and returns each host's result by the host's index."""
        return _call(self.__wrapped__, self.__name__, self.__wrapped__, args, kwargs, self._where)


@overload
def function(fun: Callable[P, R], /) -> Function[P, R]: ...
@overload
def function(
    *,
    slices: str | Iterable[int] | None = None,
    hosts: str | Iterable[int] | None = None,
    once: bool = False,
    on_cpu: bool = False,
    quiet: bool = False,
    indices: str | Iterable[int] | None = None,
    unpickle: bool | None = None,
) -> Callable[[Callable[P, R]], Function[P, R]]: ...
def function(fun: Callable[..., Any] | None = None, /, **where: Any) -> Any:
    """Makes a function that runs on hosts; use it as a decorator, with or without :class:`Where`'s attributes.

    ::

        @colocated.function(slices=[0])
        def lines(path):
            return sum(1 for _ in open(path))
    """
    if fun is None:
        return lambda wrapped: Function(wrapped, _where(**where))
    return Function(fun, Where())


class _Method:
    def __init__(self, owner: _Object, name: str) -> None:
        self._owner = owner
        self.__name__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _one(self.on_each(*args, **kwargs), self.__name__)

    def on_each(self, *args: Any, **kwargs: Any) -> dict[int, Any]:
        return self._owner._pathways_call(self.__name__, args, kwargs)


class _Object:
    """A handle on one object on each host; the objects go when it goes."""

    def __init__(self, made: type, args: tuple[Any, ...], kwargs: dict[str, Any], where: Where) -> None:
        self._made = (made, args, kwargs)
        self._where = where
        self._key = uuid.uuid4().hex[:12]
        self._present: set[int] = set()
        self._finalizer = weakref.finalize(self, MEMORY.release, self._key)
        self._finalizer.atexit = False

    def __getattr__(self, name: str) -> _Method:
        if name.startswith("__") or not callable(getattr(self._made[0], name, None)):
            raise AttributeError(f"{self._made[0].__name__} has no method {name!r}; only methods work from here.")
        return _Method(self, name)

    def __repr__(self) -> str:
        return f"<{self._made[0].__name__} on hosts>"

    def _pathways_call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[int, Any]:
        method = getattr(self._made[0], name)
        return _call(name, f"{self._made[0].__name__}.{name}", method, args, kwargs, self._where, of=self)


class Class:
    """A class whose objects live on hosts; made by :func:`class_`."""

    def __init__(self, made: type, where: Where) -> None:
        self.__name__ = made.__name__
        self.__doc__ = made.__doc__
        self.__wrapped__ = made
        self._where = where

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """A handle; the object itself is made on a host by the first call of a method there."""
        return _Object(self.__wrapped__, args, kwargs, self._where)


def class_(made: type | None = None, /, **where: Any) -> Any:
    """Makes a class whose objects live on hosts, one on each; a decorator, with or without :class:`Where`'s attributes.

    Methods are called as those of a local object; attributes are not reachable from here.
    """
    if made is None:
        return lambda wrapped: Class(wrapped, _where(**where))
    return Class(made, Where())


def _where(*, indices: str | Iterable[int] | None = None, **where: Any) -> Where:
    """What a decorator was given; `indices` is another name of ``hosts``."""
    if indices is not None:
        where.setdefault("hosts", indices)
    return Where(**where)


def _call(
    called: Any,
    name: str,
    code: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    where: Where,
    of: _Object | None = None,
) -> dict[int, Any]:
    import jax

    leaves, tree = jax.tree_util.tree_flatten((args, kwargs))
    arrays = {f"argument {place}": leaf for place, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)}
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)]
    values = [None if place in places else leaf for place, leaf in enumerate(leaves)]
    parts = {f"argument {place}": leaf for place, leaf in enumerate(values)}
    data = [preflight.pickled((called, tree, values, places), names={name: called, **parts})]
    chosen = cell_run.choose_for(arrays, where.slices, where.hosts, where.once)
    if of is not None and any(host.index not in of._present for host in chosen):
        data.append(preflight.pickled(of._made, names={of._made[0].__name__: of._made}))
    cell_run.check(chosen, (), b"".join(data))
    prepared = array_moves.prepare(arrays, chosen)
    call = uuid.uuid4().hex[:6]
    head = {
        "op": "function",
        "call": call,
        "object": of._key if of is not None else "",
        **source_of(code),
        "limit": cell_run.LIMIT,
        "live": True,
        "unpickle": (trusted := cell_run.trusts(where.unpickle)),
    }
    try:
        answers = cell_run.ask(prepared, head, data, None)
    except Interrupted as stopped:
        if stopped.answers is not None:
            _show(cell_run.result_of(call, stopped.answers, unpickle=False), quiet=where.quiet)
        raise
    finish(call, answers, quiet=where.quiet)
    if of is not None:
        of._present |= {host.index for host in chosen}
    return _results(name, chosen, call, answers, on_cpu=where.on_cpu, unpickle=trusted)


def source_of(code: Any) -> dict[str, str]:
    """A function's file and source, placed at its own lines, for tracebacks on hosts that do not have the file."""
    try:
        lines, first = inspect.getsourcelines(inspect.unwrap(code))
        filename = inspect.getsourcefile(inspect.unwrap(code)) or "<function>"
    except (OSError, TypeError):
        return {"source": "", "filename": "<function>"}
    return {"source": "\n" * (first - 1) + "".join(lines), "filename": filename}


def finish(call: str, answers: Sequence[Answer], *, quiet: bool) -> results.CallResult:
    """Shows what hosts printed, and raises what they raised."""
    result = cell_run.result_of(call, answers, unpickle=False)
    _show(result, quiet=quiet)
    error = result.error()
    if error is not None:
        raise error
    return result


def _show(result: results.CallResult, *, quiet: bool) -> None:
    for piece in show.output(result, quiet=quiet):
        if piece.stream:
            (sys.stderr if piece.stream == "stderr" else sys.stdout).write(piece.text)


def _results(
    name: str, chosen: Sequence[Host], call: str, answers: Sequence[Answer], *, on_cpu: bool, unpickle: bool
) -> dict[int, Any]:
    arrays: dict[str, jax.Array] = {}
    if any(answer.head["outputs"] for answer in answers):
        arrays = cell_run.take(chosen, call, answers, what="The result")
        if not on_cpu:
            arrays = {name: array_moves.to_chips(name, array, chosen) for name, array in arrays.items()}
    found: dict[int, Any] = {}
    first: FirstClasses = {}
    for answer in answers:
        reader = plain.Reader(f"What {name} returned", answer.parts, arrays, unpickle=unpickle, first=first)
        found[answer.host.index] = reader.read(answer.head["value"]["written"])
    return found


def _one(found: dict[int, Any], name: str) -> Any:
    first, *others = found.items()
    different = [index for index, value in others if not trees.equal(first[1], value)]
    if different:
        raise ColocatedError(
            f"{name} did not return the same on host {first[0]} and {name_hosts(different)}.",
            hint=f"{name}.on_each(...) returns every host's own result.",
        )
    return first[1]


def hosts_of(sharding: Any) -> tuple[Host, ...]:
    """The hosts of a sharding's devices."""
    from pathways_jupyter.colocated.host import hosts

    wanted = sharding.device_set
    return tuple(host for host in hosts() if wanted & {*host.chips, *host.cpus})
