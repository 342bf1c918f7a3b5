"""Functions and classes on hosts, for scripts: called like local ones, with what they print shown here.

Arguments and results are pytrees. JAX arrays travel as arrays, moved between chips and the CPU devices beside them with
their sharding kept. Everything else is pickled on its way to the hosts; what comes back is read by
:mod:`pathways_jupyter.colocated.value_reader`.
"""

from __future__ import annotations

import functools
import inspect
import sys
import uuid
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from pathways_jupyter.colocated import array_moves, cell_run, preflight, show, trees
from pathways_jupyter.colocated.channel import Answer
from pathways_jupyter.colocated.errors import ColocatedError, name_hosts
from pathways_jupyter.colocated.memory import MEMORY
from pathways_jupyter.colocated.results import CallResult, Interrupted
from pathways_jupyter.colocated.value_reader import Reader
from pathways_jupyter.saved import on_devices

if TYPE_CHECKING:
    import jax

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Where:
    """Hosts of a function, and the handling of its results.

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
    """A function that runs on hosts, made by :func:`function`; or a method of an object on each.

    Args:
      fun: The function, or the method as its class has it.
      of: The objects; None for a function.
      name: The method's name.
    """

    def __init__(self, fun: Callable[P, R], where: Where, of: _Object | None = None, name: str = "") -> None:
        self.__name__ = name or getattr(fun, "__name__", type(fun).__name__)
        self.__doc__ = fun.__doc__
        if of is None:
            # Of a method the signature would have the object, which callers do not give.
            self.__wrapped__ = fun
        self._fun = fun
        self._where = where
        self._of = of

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call it on every host, and return the one result: a pytree whose arrays are global.

        Raises:
          HostError: It raised on some host.
          ColocatedError: Values other than arrays are not the same on all hosts; see :meth:`on_each`.
          CheckError: It, or an argument, cannot be sent; nothing ran.
        """
        (index, first), *others = self.on_each(*args, **kwargs).items()
        different = [other for other, value in others if not trees.equal(first, value)]
        if different:
            raise ColocatedError(
                f"{self.__name__} did not return the same on host {index} and {name_hosts(different)}.",
                hint=f"{self.__name__}.on_each(...) returns every host's own result.",
            )
        return first

    def on_each(self, *args: P.args, **kwargs: P.kwargs) -> dict[int, R]:
        """Call it on every host, and return each host's result by the host's index; raises the same errors."""
        where, of, name = self._where, self._of, self.__name__
        # A method goes by its name.
        called: Any = self._fun
        if of is not None:
            called, name = name, f"{of._made[0].__name__}.{name}"
        # No name of a keyword has a space in it.
        split = trees.split({**{f"argument {index}": each for index, each in enumerate(args)}, **kwargs})
        data = [preflight.pickled((called, split.values, split.trees), names={name: called, **split.pickled})]
        chosen = cell_run.choose_for(split.arrays, where.slices, where.hosts, where.once)
        # An object is made by the first call that reaches its host.
        make = [index for index, host in enumerate(chosen) if of is not None and host.index not in of._present]
        if of is not None and make:
            data.append(preflight.pickled(of._made, names={of._made[0].__name__: of._made}))
            of._sent |= {host.index for host in chosen}
            on_devices.ending[of] = ()
        preflight.check(chosen, (), b"".join(data))
        call = uuid.uuid4().hex[:6]
        head = {
            "op": "function",
            "call": call,
            "object": of._key if of is not None else "",
            "make": make,
            "inputs": list(split.arrays),
            "positional": len(args),
            **source_of(self._fun),
            "live": True,
            "unpickle": (trusted := cell_run.trusts(where.unpickle)),
        }
        try:
            answers = cell_run.ask(array_moves.prepare(split.arrays, chosen), head, data)
        except Interrupted as stopped:
            if stopped.answers is not None:
                self._note_present(stopped.answers)
                show_output(call, stopped.answers, quiet=where.quiet)
            raise
        self._note_present(answers)
        raise_failures(call, answers, quiet=where.quiet)
        outputs: dict[str, jax.Array] = {}
        if any(answer.head["outputs"] for answer in answers):
            specs = {answer.host.index: answer.head["outputs"] for answer in answers}
            outputs = array_moves.fetch(call, specs, chosen, on_cpu=where.on_cpu, what="The result")
        by_host: dict[int, Any] = {}
        for answer in answers:
            reader = Reader(f"What {name} returned", answer.parts, outputs, unpickle=trusted)
            by_host[answer.host.index] = reader.read(answer.head["result"])
        return by_host

    def _note_present(self, answers: Sequence[Answer]) -> None:
        """Note the hosts that have the object now, also where the method itself failed."""
        if self._of is not None:
            self._of._present |= {answer.host.index for answer in answers if answer.head["held"]}


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
    unpickle: bool | None = None,
) -> Callable[[Callable[P, R]], Function[P, R]]: ...
def function(fun: Callable[..., Any] | None = None, /, **where: Any) -> Any:
    """Make a function that runs on hosts; use it as a decorator, with or without :class:`Where`'s attributes.

    ::

        @colocated.function(slices=[0])
        def lines(path):
            return sum(1 for _ in open(path))
    """
    return Function(fun, Where()) if fun is not None else lambda wrapped: Function(wrapped, Where(**where))


class _Object:
    """A handle on one object on each host; the objects go when it goes. Its own fields must not hide their methods.

    `_present` are the hosts that have the object, `_sent` those that may have it: a call may be lost with its answer.
    """

    def __init__(self, made: type, args: tuple[Any, ...], kwargs: dict[str, Any], where: Where) -> None:
        self._made = (made, args, kwargs)
        self._where = where
        self._key = uuid.uuid4().hex[:12]
        self._present: set[int] = set()
        self._sent: set[int] = set()
        weakref.finalize(self, MEMORY.release, self._key, self._sent).atexit = False

    def __getattr__(self, name: str) -> Function[..., Any]:
        method = None if name.startswith("__") else getattr(self._made[0], name, None)
        if not callable(method):
            raise AttributeError(f"{self._made[0].__name__} has no method {name!r}; only methods work from here.")
        return Function(method, self._where, self, name)

    def __repr__(self) -> str:
        return f"<{self._made[0].__name__} on hosts>"


def class_(made: type | None = None, /, **where: Any) -> Any:
    """Make a class whose objects live on hosts, one on each; a decorator, with or without :class:`Where`'s attributes.

    Methods are called as those of a local object; attributes are not reachable from here. A call of the class returns a
    handle; the object itself is made on a host by the first call of a method there.
    """
    if made is None:
        return functools.partial(class_, **where)

    @functools.wraps(made, updated=())
    def handle(*args: Any, **kwargs: Any) -> _Object:
        return _Object(made, args, kwargs, Where(**where))

    return handle


def source_of(code: Any) -> dict[str, str]:
    """Return a function's file and source, placed at its own lines, for tracebacks on hosts without the file."""
    try:
        lines, first = inspect.getsourcelines(inspect.unwrap(code))
        filename = inspect.getsourcefile(inspect.unwrap(code)) or "<function>"
    except (OSError, TypeError):
        return {"source": "", "filename": "<function>"}
    return {"source": "\n" * (first - 1) + "".join(lines), "filename": filename}


def raise_failures(call: str, answers: Sequence[Answer], *, quiet: bool = False) -> None:
    """Show what hosts printed, and raise what they raised."""
    error = show_output(call, answers, quiet=quiet).error()
    if error is not None:
        raise error


def show_output(call: str, answers: Sequence[Answer], *, quiet: bool) -> CallResult:
    """Write what hosts printed to this process's own streams."""
    result = cell_run.result_of(call, answers, unpickle=False)
    for piece in show.output(result, quiet=quiet):
        if piece.stream:
            (sys.stderr if piece.stream == "stderr" else sys.stdout).write(piece.text)
    return result
