"""Versions, lock files and commands that are named in more than one file agree."""

import importlib
import json
import re
import tomllib
from pathlib import Path

import make_dist
import pytest
import yaml
from packaging.requirements import Requirement

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


def test_links_of_the_package_s_page_follow_from_the_address_of_the_repository(tmp_path):
    core = pytest.importorskip("hatchling.metadata.core", reason="builds need it, and `make test` installs it")
    plugins = importlib.import_module("hatchling.plugin.manager").PluginManager()
    for name in ("README.md", "pyproject.toml", "LICENSE", "tools", "labextension"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "pathways_jupyter" / "base").mkdir(parents=True)
    project = tmp_path / "pathways_jupyter" / "base" / "project.py"
    source = (ROOT / "pathways_jupyter" / "base" / "project.py").read_text(encoding="utf-8")

    def described(address):
        project.write_text(source.replace('REPOSITORY = ""', f'REPOSITORY = "{address}"'))
        return core.ProjectMetadata(str(tmp_path), plugins).core

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    unpublished, published = described(""), described("https://forge.test/us/pathways_jupyter")
    assert (unpublished.urls, unpublished.readme) == ({}, readme)
    assert published.urls["Homepage"] == "https://forge.test/us/pathways_jupyter"
    assert published.urls["Changelog"].endswith("/blob/HEAD/CHANGELOG.md")
    links = re.findall(r"(!?)\[[^\]]*\]\(([^)]+)\)", published.readme)
    assert len(links) > 20
    assert [link for _, link in links if not link.startswith("https://")] == []
    # What is not a page of the repository is shown as it is.
    assert [link.partition("/docs/")[0] for image, link in links if image] == [f"{published.urls['Homepage']}/raw/HEAD"]


def test_jupyter_finds_both_extensions():
    assert pathways_jupyter._jupyter_labextension_paths() == [{"src": "labextension", "dest": "pathways-jupyter"}]
    (point,) = pathways_jupyter._jupyter_server_extension_points()
    assert point["module"] == "pathways_jupyter.server"


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


def test_actions_are_named_by_their_commit_and_keep_no_credentials():
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        for name in re.findall(r"uses: (.*)", path.read_text(encoding="utf-8")):
            assert name.startswith("./") or re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", name), name
    steps = [
        step for workflow in WORKFLOWS.values() for job in workflow["jobs"].values() for step in job.get("steps", ())
    ]
    checkouts = [step for step in steps if step.get("uses", "").startswith("actions/checkout@")]
    assert checkouts
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_what_builds_a_release_is_locked_by_hashes_and_names_no_registry():
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lock = (ROOT / "tools" / "release-requirements.txt").read_text(encoding="utf-8")
    assert not re.search(r"https?://|--index|--find-links", lock)
    assert set(whole["build-system"]["requires"]) <= set(whole["dependency-groups"]["release"])
    blocks = re.split(r"(?m)^(?=[a-z])", re.sub(r"(?m)^#.*\n", "", lock))[1:]
    assert all("--hash=sha256:" in each for each in blocks)
    locked = dict(re.match(r"([\w-]+)==([^\s;]+)", each).groups() for each in blocks)
    for each in map(Requirement, whole["dependency-groups"]["release"]):
        assert each.specifier.contains(locked[each.name]), each


def test_the_sidebar_asks_for_the_jupyterlab_that_its_extra_allows():
    asked = json.loads((LAB / "package.json").read_text(encoding="utf-8"))["dependencies"]["@jupyterlab/application"]
    (allowed,) = [each for each in PROJECT["optional-dependencies"]["lab"] if each.startswith("jupyterlab")]
    assert allowed == f"jupyterlab>={asked.removeprefix('^').removesuffix('.0')},<5"


@pytest.fixture
def tree(tmp_path):
    """A tree that is ready for the release of 1.2.3."""
    (tmp_path / "pathways_jupyter" / "base").mkdir(parents=True)
    source = (ROOT / "pathways_jupyter" / "base" / "project.py").read_text(encoding="utf-8")
    address = re.sub(r'REPOSITORY = ".*"', 'REPOSITORY = "https://forge.test/us/it"', source)
    (tmp_path / "pathways_jupyter" / "base" / "project.py").write_text(address)
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("# It\n")
    (tmp_path / "CHANGELOG.md").write_text("## 1.2.3 (2027-01-31)\n")
    return tmp_path


def test_a_tree_with_the_address_and_a_date_is_a_release(tree):
    make_dist.check_tag("v1.2.3", "1.2.3", tree)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("CHANGELOG.md", "## 1.2.3 (unreleased)\n", "with its date"),
        ("CHANGELOG.md", "## 1.2.3 (soon)\n", "with its date"),
        ("README.md", "There is no release yet; until then, install from source.", "README.md say"),
        ("docs/installation.md", "There is no release yet.", "installation.md say"),
        ("pathways_jupyter/base/project.py", 'REPOSITORY = ""', "address of the repository"),
    ],
)
def test_what_a_release_still_needs_is_named(tree, name, text, words):
    (tree / name).write_text(text)
    with pytest.raises(SystemExit, match=words):
        make_dist.check_tag("v1.2.3", "1.2.3", tree)
    with pytest.raises(SystemExit, match=r"The tag is v1\.2\.4"):
        make_dist.check_tag("v1.2.4", "1.2.3", tree)


def test_a_rehearsal_may_come_before_the_date_of_the_release():
    make_dist.check_tag("", pathways_jupyter.__version__, ROOT)


def test_old_installers_know_the_version_of_the_metadata():
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"]
    assert {each["core-metadata-version"] for each in targets.values()} == {"2.4"}


def test_the_newest_dependencies_are_tried_every_night():
    # YAML reads the key as true.
    assert "schedule" in WORKFLOWS["test"][True]
