"""Versions, lock files and commands that are named in more than one file agree."""

import json
import re
from pathlib import Path

import pytest
from jupyterlab_server.translation_utils import get_installed_packages_locale

import pathways_jupyter

ROOT = Path(__file__).parents[1]
LAB = ROOT / "labextension"


def test_the_version_lives_in_one_place():
    package = json.loads((LAB / "package.json").read_text(encoding="utf-8"))
    assert pathways_jupyter.__version__ == package["version"]
    assert not re.search(r'(?m)^version = "', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("project", [LAB, LAB / "ui-tests"])
def test_lock_files_name_no_registry(project):
    lock = (project / "yarn.lock").read_text(encoding="utf-8")
    assert not re.search(r"https?://|__archiveUrl", lock)


def test_jupyter_finds_both_extensions():
    assert pathways_jupyter._jupyter_labextension_paths() == [{"src": "labextension", "dest": "pathways-jupyter"}]
    (point,) = pathways_jupyter._jupyter_server_extension_points()
    assert point["module"] == "pathways_jupyter.server"


def test_jupyterlab_finds_the_translations():
    found, _ = get_installed_packages_locale("de_DE")
    assert found["pathways_jupyter"]["Session"] == ["Sitzung"]


def test_every_command_of_the_sidebar_is_declared_once():
    tokens = (LAB / "src" / "tokens.ts").read_text(encoding="utf-8")
    declared = re.findall(r"= '(pathways-jupyter:[\w-]+)'", tokens)
    assert len(declared) == len(set(declared))
    schema = json.loads((LAB / "schema" / "plugin.json").read_text(encoding="utf-8"))
    for item in schema["jupyter.lab.menus"]["main"][0]["items"]:
        assert item.get("command", declared[0]) in declared
