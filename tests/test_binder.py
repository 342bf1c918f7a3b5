"""Binder's steps with this repository, in a clean directory: ``make wheel`` runs this."""

import subprocess

import pytest
from installations import ROOT, Installation, clean_tree

pytestmark = [pytest.mark.wheel, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    return clean_tree(tmp_path_factory.mktemp("binder") / "repository")


@pytest.fixture(scope="module")
def image(machine, repository, tmp_path_factory):
    """The environment after both steps, each in the repository's directory, with the Python of the tests."""
    made = Installation.make(tmp_path_factory.mktemp("image"), machine.environ)
    made.pip("install", "--requirement", "binder/requirements.txt", cwd=repository)
    done = subprocess.run(
        ["binder/postBuild"], cwd=repository, env=made.environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return made


def test_it_asks_for_a_python_that_the_package_allows():
    """Without it, Binder takes one that is too old."""
    asked = (ROOT / "binder" / "runtime.txt").read_text(encoding="utf-8").strip()
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f"Python :: {asked.removeprefix('python-')}" in project


def test_the_build_leaves_nothing_in_the_image_that_only_it_needs(image, repository):
    assert (repository / "pathways_jupyter" / "labextension" / "package.json").is_file()
    assert not (repository / "labextension" / "node_modules").exists()
    image.pip("check")


def test_the_first_notebook_runs_beside_the_sidebar(image, repository):
    image.open_first_notebook(repository / "examples" / "notebooks")
