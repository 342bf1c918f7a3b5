"""The program of the hosts as bytes, and what a transport provides: that program on a host, with bytes in and out.

The bytes are its sources, and the few lines of Python that start them.
"""

from __future__ import annotations

import functools
import importlib.resources
import json
import zlib
from collections.abc import Awaitable, Callable
from typing import Protocol

from pathways_jupyter.multihost.targets import Target


class Channel(Protocol):
    """A running program on a host.

    Its methods raise :class:`~pathways_jupyter.multihost.errors.HostUnreachable` when the connection is lost.
    """

    async def write(self, data: bytes) -> None:
        """Send `data` to the program; waits while the connection is full."""

    async def read(self) -> bytes:
        """Return what the program has written; empty at its end."""

    async def close(self) -> None:
        """Close the connection."""

    def complaint(self) -> str:
        """Return the last line that the program wrote to its standard error."""


Connect = Callable[[Target, list[str]], Awaitable[Channel]]
"""Start a program, given as its arguments, on a host."""


PACKAGE = "pathways_jupyter.multihost.remote"
_MODULES = ("frames", "content_store", "tree", "processes", "keeper", "share", "serve")

# Modules are compiled when they are imported: most connections need only some, and compiling takes longer than sending.
BOOTSTRAP = f"""
import json, os, sys, zlib
def read(size):
    data = b""
    while len(data) < size:
        piece = os.read(0, size - len(data))
        if not piece:
            sys.exit(0)
        data += piece
    return data
sources = dict(json.loads(zlib.decompress(read(int.from_bytes(read(4), "big")))))
class Sources:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in sources:
            return type(sys.__spec__)(name, Sources, is_package=not sources[name])
    @staticmethod
    def create_module(spec):
        return None
    @staticmethod
    def exec_module(module):
        exec(compile(sources[module.__name__], module.__name__, "exec"), module.__dict__)
sys.meta_path.insert(0, Sources)
from {PACKAGE}.serve import main
main()
""".strip()
"""The argument of ``python3 -c`` on a host; it reads :func:`program` from its standard input and runs it."""


@functools.cache
def program() -> bytes:
    """Return the sources in the form that :data:`BOOTSTRAP` reads."""
    parts = PACKAGE.split(".")
    packages = [(".".join(parts[: number + 1]), "") for number in range(len(parts))]
    here = importlib.resources.files(PACKAGE)
    modules = [(f"{PACKAGE}.{name}", here.joinpath(f"{name}.py").read_text(encoding="utf-8")) for name in _MODULES]
    packed = zlib.compress(json.dumps([*packages, *modules]).encode())
    return len(packed).to_bytes(4, "big") + packed
