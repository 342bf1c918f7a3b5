"""The program of the hosts as bytes: its sources, and the few lines of Python that start them."""

from __future__ import annotations

import functools
import importlib.resources
import json
import zlib

PACKAGE = "pathways_jupyter.multihost.remote"
_MODULES = ("frames", "store", "tree", "processes", "keeper", "serve")
"""In the order of their imports."""

BOOTSTRAP = """
import json, os, sys, types, zlib
def read(size):
    data = b""
    while len(data) < size:
        piece = os.read(0, size - len(data))
        if not piece:
            sys.exit(0)
        data += piece
    return data
for name, source in json.loads(zlib.decompress(read(int.from_bytes(read(4), "big")))):
    module = sys.modules[name] = types.ModuleType(name)
    module.__path__ = []
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)
    exec(compile(source, name, "exec"), module.__dict__)
module.main()
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
