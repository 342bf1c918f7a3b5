"""Check that a public class name of the package means one thing: no two modules define the same.

Run from the project's root (`make lint` does).
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from pathlib import Path

PACKAGE = "pathways_jupyter"


def main() -> int:
    """Print each name that two modules define; the exit status is 1 then."""
    homes: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(Path(PACKAGE).rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(path)
    shared = {name: paths for name, paths in homes.items() if len(paths) > 1}
    for name, paths in sorted(shared.items()):
        print(f"class {name} is in {len(paths)} modules ({', '.join(map(str, paths))}): choose another name for one")
    return 1 if shared else 0


if __name__ == "__main__":
    sys.exit(main())
