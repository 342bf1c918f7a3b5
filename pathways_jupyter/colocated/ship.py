"""Send the code of :mod:`pathways_jupyter.colocated.remote` to hosts that do not have this package.

JAX pickles a colocated function with cloudpickle, which writes Python's own byte code: that runs only on the same
version of Python. What is sent from here is source text instead, so that even a host of another version can say which
one it is.
"""

from __future__ import annotations

import functools
import hashlib
from importlib import resources
from typing import Any

# The modules of the remote package, each after those that it imports.
_MODULES = (
    "codec",
    "store",
    "transcript",
    "streams",
    "rich",
    "failures",
    "stoppable",
    "namespaces",
    "value_writer",
    "shardings",
    "outputs",
    "feeds",
    "calls",
    "serve",
)

_LOADER = """
def load(package, sources, entry):
    import sys, threading, types
    with sys.__dict__.setdefault("_pathways_jupyter_lock", threading.RLock()):
        if package + ".serve" not in sys.modules:
            parent = types.ModuleType(package)
            parent.__path__ = []
            sys.modules[package] = parent
            for name, text in sources:
                module = types.ModuleType(package + "." + name)
                module.__package__ = package
                sys.modules[module.__name__] = module
                try:
                    exec(compile(text, "<" + module.__name__ + ">", "exec"), module.__dict__)
                except BaseException:
                    del sys.modules[module.__name__]
                    raise
                setattr(parent, name, module)
    return getattr(sys.modules[package + ".serve"], entry)
"""

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
    folder = resources.files("pathways_jupyter.colocated.remote")
    sources = [(name, (folder / f"{name}.py").read_text(encoding="utf-8")) for name in _MODULES]
    digest = hashlib.sha256(repr(sources).encode()).hexdigest()[:12]
    package = f"_pathways_jupyter_{digest}"
    return f"(lambda names: (exec({_LOADER!r}, names), names['load'])[1])({{}})({package!r}, {sources!r}, {entry!r})"
