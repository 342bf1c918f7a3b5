"""Print the sentences that the Python package says, as JSON: the files of each, relative to the repository.

Usage: python sentences.py REPOSITORY
"""

import ast
import json
import sys
from pathlib import Path

MODULE = "pathways_jupyter.base.sentences"


def main(repository: Path) -> None:
    """Print what is said in the package of `repository`."""
    found: dict[str, list[str]] = {}
    for path in sorted((repository / "pathways_jupyter").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        # Others have functions of this name too.
        imports = [node.names for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == MODULE]
        if not any(name.name == "say" for names in imports for name in names):
            continue
        file = str(path.relative_to(repository))
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Name(id="say"), args=[ast.Constant(value=str(sentence))]):
                    found.setdefault(sentence, []).append(file)
                case ast.Call(func=ast.Name(id="say")):
                    sys.exit(f"{file}:{node.lineno}: the sentence is not a literal, so it cannot be translated")
    print(json.dumps(found))


main(Path(sys.argv[1]))
