"""Packages that are missing: those of an extra on this machine, and this one on a machine that runs a program of it.

The core has what connecting a notebook needs. What only some users need is brought by an extra: ``[lab]``, ``[local]``,
``[hosts]``, ``[elastic]`` and ``[profile]``; ``[all]`` is all of them. What is missing for a part is named before that
part changes anything.

A program for a machine without this package is a few modules that import each other and the standard library of Python
3.9, nothing else. They travel as text, so that any Python there can compile them, and someone can read what arrives.
"""

from __future__ import annotations

import importlib.resources
import importlib.util
from collections.abc import Iterable

from pathways_jupyter.base.errors import ConfigError

LOADER = """
import _thread, sys, types
def load(package, sources):
    with vars(sys).setdefault("_pathways_jupyter_lock", _thread.RLock()):
        parent = sys.modules.get(package)
        if not hasattr(parent, "last"):
            parent = sys.modules[package] = types.ModuleType(package)
            parent.__path__ = []
            for name, text in sources:
                module = types.ModuleType(package + "." + name)
                module.__package__ = package
                sys.modules[module.__name__] = module
                exec(compile(text, "<" + module.__name__ + ">", "exec"), vars(module))
                setattr(parent, name, module)
            parent.last = module
        return parent.last
"""
"""Defines ``load(package, sources)`` on the other machine: makes the modules once in a process, returns the last one.

Not with the modules threading and importlib, whose import takes longer than a short run there.
"""


def require(extra: str, what: str, *modules: str) -> None:
    """Check that the modules which an extra brings are installed, without importing them.

    Args:
      extra: Name of the extra, for instance ``local``.
      what: What needs it, as the beginning of a sentence: ``"The embedded cluster"``.

    Raises:
      ConfigError: One is missing; the hint is the pip command.
    """
    for module in modules:
        try:
            is_installed = importlib.util.find_spec(module) is not None
        except ModuleNotFoundError:
            # The package around it is missing.
            is_installed = False
        if not is_installed:
            raise ConfigError(
                f"{what} needs the package {module}, which is not installed.",
                hint=f"Run pip install 'pathways_jupyter[{extra}]'.",
            )


def sources(package: str, names: Iterable[str]) -> list[tuple[str, str]]:
    """Return the names and sources of modules of `package`; each has to come after those that it imports."""
    here = importlib.resources.files(package)
    return [(name, here.joinpath(f"{name}.py").read_text(encoding="utf-8")) for name in names]
