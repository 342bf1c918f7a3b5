"""Versions, lock files and commands that are named in more than one file agree."""

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from jupyterlab_server.translation_utils import get_installed_packages_locale

import pathways_jupyter

ROOT = Path(__file__).parents[1]
LAB = ROOT / "labextension"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOWS = {
    path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))
    for path in (ROOT / ".github" / "workflows").glob("*.yml")
}


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


def test_workflows_run_only_what_the_makefile_offers():
    targets = re.findall(r"(?m)^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"))
    jobs = [job for workflow in WORKFLOWS.values() for job in workflow["jobs"].values()]
    commands = {step["run"] for job in jobs for step in job.get("steps", ()) if "run" in step}
    chosen = set(WORKFLOWS["test"]["jobs"]["checks"]["strategy"]["matrix"]["target"])
    commands = commands - {"make ${{ matrix.target }}"} | {f"make {target}" for target in chosen}
    assert commands <= {f"make {target}" for target in targets}


def test_workflows_test_each_python_and_the_oldest_jax_that_the_package_names():
    matrix = WORKFLOWS["test"]["jobs"]["tests"]["strategy"]["matrix"]
    named = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", each)]
    assert matrix["python"] == named
    (jax,) = [each for each in PROJECT["dependencies"] if re.match(r"jax\W", each)]
    assert {f"jax>={each['jax']}" for each in matrix["include"]} == {jax.partition(",")[0]}


def test_what_is_published_has_passed_the_tests_and_needs_no_token():
    jobs = WORKFLOWS["release"]["jobs"]
    assert jobs["test"]["uses"] == "./.github/workflows/test.yml"
    assert set(jobs["publish"]["needs"]) == {"test", "build"}
    assert jobs["publish"]["permissions"] == {"id-token": "write"}


def test_the_sidebar_asks_for_the_jupyterlab_that_its_extra_allows():
    asked = json.loads((LAB / "package.json").read_text(encoding="utf-8"))["dependencies"]["@jupyterlab/application"]
    (allowed,) = [each for each in PROJECT["optional-dependencies"]["lab"] if each.startswith("jupyterlab")]
    assert allowed == f"jupyterlab>={asked.removeprefix('^').removesuffix('.0')},<5"
