"""Check that a name of the package means one thing: that of a public class, also a nested one, and that of a module.

A room's faces, such as its command, its action and its view, have its name. Run from the project's root (`make lint`
does).
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path("pathways_jupyter")
FACES = {"actions", "cli", "commands", "magics", "render", "server"}
"""Rooms whose modules are named after what they show."""
CONVENTIONS = {
    "__main__": "what `python -m` starts",
    "client": "one side of a connection: to an API server, to a supervisor",
    "credentials": "one side's: those that are sent, those that are checked",
    "errors": "those of a room",
    "kernel": "of a notebook: a session's side in its process, and what a kernelspec starts",
    "main": "where a process begins",
    "remote": "what runs on hosts",
    "shardings": "JAX's, and IFRT's",
    "wire": "the bytes of a protocol",
}
"""Modules in several rooms that are the same thing in each."""


def main() -> int:
    """Print each name that has two meanings; the exit status is 1 then."""
    classes: dict[str, list[str]] = defaultdict(list)
    modules: dict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(str(path))
        for name in _of_module(path):
            modules[name].append(str(path))
    shared = [
        f"{kind} {name} is in {len(homes)} modules ({', '.join(homes)}): choose another name for one"
        for kind, by_name in (("class", classes), ("module", modules))
        for name, homes in sorted(by_name.items())
        if len(homes) > 1
    ]
    print("\n".join(shared), end="\n" * bool(shared))
    return bool(shared)


def _of_module(path: Path) -> Iterator[str]:
    """Yield the name of a module or package; none for a face, or the main module of a package of its name."""
    path = path.relative_to(PACKAGE)
    named = path.parent if path.name == "__init__.py" else path.with_suffix("")
    if named.stem not in {"", *CONVENTIONS, *named.parts[:-1]} and path.parts[0] not in FACES - {named.stem}:
        yield named.stem


if __name__ == "__main__":
    sys.exit(main())
