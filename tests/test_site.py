"""The documentation's site: its generated pages are complete, and its tutorial runs."""

import ast
import importlib
import re
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
SERVICE = Path(__file__).parents[1] / "pathways_jupyter" / "service"


@pytest.fixture(scope="module")
def generate():
    sys.path.insert(0, str(DOCS))
    yield importlib.import_module("generate")
    sys.path.remove(str(DOCS))


def test_the_tutorial_runs_as_it_is_written(cluster, notebook):
    page = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    here = page.partition("## The same on a real cluster")[0]
    cells = re.findall(r"```python\n(.*?)```", here, re.DOTALL)
    ran = [notebook.run(cell) for cell in cells]
    assert [each.status for each in ran] == ["ok"] * len(cells), [each.shown for each in ran]
    connected, devices, computed, colocated, injected, disconnected = ran
    assert "connected" in connected.text
    assert devices.text.count("TPU_DEVICE") == 8
    # 0*0 + ... + 31*31
    assert "10416" in computed.text
    assert colocated.text.count("(1, 4)") == 8
    assert "slice 1" in injected.text.lower()
    assert "rows" in disconnected.text


def test_troubleshooting_has_every_error(generate):
    page = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    names = {each.rpartition(".")[2] for each in generate.error_classes()} - {"PathwaysError"}
    assert len(names) > 20
    assert sorted(each for each in names if f"\n### {each}\n" not in page) == []


def test_troubleshooting_has_every_finding_of_the_doctor():
    page = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    named = set()
    for module in ("doctor.py", "checks.py"):
        for call in ast.walk(ast.parse((SERVICE / module).read_text(encoding="utf-8"))):
            match call:
                case ast.Call(func=ast.Name(id="Finding" | "failed"), args=[ast.Constant(value=name), *_]):
                    named.add(name)
    assert len(named) > 8
    assert [each for each in sorted(named) if f"\n### {each}\n" not in page] == []


def test_every_command_and_route_has_its_entry(generate, tmp_path):
    generate.write(tmp_path)
    pages = {each.name: each.read_text(encoding="utf-8") for each in (tmp_path / "reference" / "generated").iterdir()}
    assert {"magics.md", "terminal.md", "errors.md", "events.md", "labels.md", "routes.md"} == set(pages)
    for name in ("%pathways connect", "%pathways job apply", "%colocated hosts", "%%colocated", "%%multihost"):
        assert f"\n## `{name}`\n" in pages["magics.md"]
    for name in ("run", "demo", "service deploy", "multihost", "operator manifests", "local up"):
        assert f"\n## `pathways-jupyter {name}`\n" in pages["terminal.md"]
    # A line of a table without a meaning is one that is not explained.
    for name in ("errors.md", "labels.md", "routes.md"):
        assert "|  |\n" not in pages[name], name
