"""Programs that travel to machines without this package."""

import ast
import json
import subprocess
import sys

import pytest

from pathways_jupyter.base import packages
from pathways_jupyter.multihost import host_program
from pathways_jupyter.tunnel.relay import relay_container

OLDEST = (3, 9)
"""The oldest Python on a host."""
PROGRAM = f"{packages.LOADER}\nimport json\nload('some.package', json.load(sys.stdin)).main()"


def test_modules_find_each_other_without_their_package():
    sources = [
        ("low", "def word():\n    return 'carried'\n"),
        ("high", "from some.package import low\nfrom some.package.low import word\n"
                 "def main():\n    print(low.word(), word(), __name__)\n"),
    ]  # fmt: skip
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", PROGRAM],
        input=json.dumps(sources),
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split() == ["carried", "carried", "some.package.high"]


@pytest.mark.parametrize(
    ("package", "names"),
    [(host_program.PACKAGE, host_program.MODULES), (relay_container.PACKAGE, relay_container.MODULES)],
)
def test_a_program_needs_nothing_but_an_old_python(package, names):
    sent: set[str] = set()
    for name, text in packages.sources(package, names):
        for node in ast.walk(ast.parse(text, feature_version=OLDEST)):
            wanted = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module == package:
                wanted = [f"{package}.{each.name}" for each in node.names]
            elif isinstance(node, ast.ImportFrom):
                wanted = [node.module]
            own = {each for each in wanted if each.startswith("pathways_jupyter")}
            assert {each.partition(".")[0] for each in set(wanted) - own} <= sys.stdlib_module_names
            assert own <= sent, f"{name} imports what comes after it"
        sent.add(f"{package}.{name}")
