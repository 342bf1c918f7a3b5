"""Send the code of :mod:`pathways_jupyter.colocated.remote` to hosts that do not have this package.

JAX pickles a colocated function with cloudpickle, which writes Python's own byte code: that runs only on the same
version of Python. What is sent from here is source text instead, so that even a host of another version can say which
one it is.
"""

from __future__ import annotations

import functools
import hashlib
from typing import Any

from pathways_jupyter.base import packages

# The modules of the remote package, each after those that it imports.
_MODULES = (
    "codec",
    "transcript",
    "streams",
    "rich",
    "failures",
    "stoppable",
    "namespaces",
    "value_writer",
    "outputs",
    "prefetching",
    "calls",
    "serve",
)

VERSIONS_MARK = "pathways_jupyter versions"
_REPORT = f"""
def report():
    import importlib.metadata, json, platform
    found = {{"python": platform.python_version()}}
    for name in ("jax", "jaxlib", "numpy", "cloudpickle"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    raise RuntimeError({VERSIONS_MARK!r} + " " + json.dumps(found))
"""


class _Evaluated:
    """Stands for what a host evaluates when it reads the request; callable, as JAX and functools.partial require."""

    __name__ = "pathways_jupyter"

    def __init__(self, expression: str) -> None:
        self._expression = expression

    def __call__(self, *arrays: Any) -> Any:
        raise NotImplementedError("This is called on hosts only.")

    def __reduce__(self) -> tuple[Any, ...]:
        return eval, (self._expression,)


VERSIONS = _Evaluated(f"(lambda names: (exec({_REPORT!r}, names), names['report']()))({{}})")
"""A function that cannot be loaded on any host: the error contains the host's versions.

It is read before all else that JAX sends along, so also by a JAX that cannot read that.
"""


class Shipped(_Evaluated):
    """A function of ``remote/serve.py`` that JAX can send to a host.

    Args:
      entry: The function's name.
      arguments: Its first arguments; JAX's meshes and shardings may be among them.
    """

    def __init__(self, entry: str, *arguments: Any) -> None:
        super().__init__(_load(entry))
        self.__name__ = f"pathways_jupyter_{entry}"
        self._arguments = arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial, (_Evaluated(self._expression), *self._arguments)


@functools.cache
def _load(entry: str) -> str:
    """Return the expression that loads the remote package, once in a process, and gives a function of ``serve.py``."""
    sources = packages.sources("pathways_jupyter.base", ["shardings"])
    sources += packages.sources("pathways_jupyter.colocated.remote", _MODULES)
    # A name for each version of the sources: a sidecar outlives the sessions that send them.
    name = f"_pathways_jupyter_{hashlib.sha256(repr(sources).encode()).hexdigest()[:12]}"
    loaded = f"names['load']({name!r}, {sources!r})"
    return f"(lambda names: (exec({packages.LOADER!r}, names), getattr({loaded}, {entry!r}))[1])({{}})"
