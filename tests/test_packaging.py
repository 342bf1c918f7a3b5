"""One version, one output, and nothing of the machine that built it."""

import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

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


def test_every_command_of_the_sidebar_is_declared_once():
    tokens = (LAB / "src" / "tokens.ts").read_text(encoding="utf-8")
    declared = re.findall(r"= '(pathways-jupyter:[\w-]+)'", tokens)
    assert len(declared) == len(set(declared))
    schema = json.loads((LAB / "schema" / "plugin.json").read_text(encoding="utf-8"))
    for item in schema["jupyter.lab.menus"]["main"][0]["items"]:
        assert item.get("command", declared[0]) in declared


@pytest.mark.skipif(not (LAB / "node_modules").is_dir(), reason="the sidebar's packages are not installed")
def test_the_sidebars_models_pass_their_own_tests():
    done = subprocess.run(
        [Path(sys.executable).with_name("jlpm"), "test"],
        cwd=LAB,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_clean_tree_makes_a_wheel_with_both_extensions_and_needs_no_node(tmp_path):
    source = tmp_path / "source"
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
    source.mkdir()
    subprocess.run(["tar", "x", "-C", str(source)], input=archive, check=True)
    venv.create(tmp_path / "venv", with_pip=True)
    binaries = tmp_path / "venv" / "bin"
    environ = {**os.environ, "PATH": f"{binaries}{os.pathsep}{_without_node(tmp_path)}"}
    assert shutil.which("node", path=environ["PATH"]) is None

    def run(*command):
        return subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True)

    run(str(binaries / "pip"), "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(source))
    (wheel,) = tmp_path.glob("*.whl")
    _check_wheel(wheel, str(tmp_path))
    run(str(binaries / "pip"), "install", "--quiet", str(wheel))
    for kind, name in (("labextension", "pathways-jupyter"), ("server extension", "pathways_jupyter")):
        listed = run(str(binaries / "jupyter"), *kind.split(), "list")
        lines = [line for line in (listed.stdout + listed.stderr).splitlines() if name in line]
        assert any("OK" in line for line in lines), lines


def _check_wheel(wheel, directory):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        entries = [name for name in names if re.search(r"remoteEntry\.[\w.]*js$", name)]
        assert len(entries) == 1, entries
        assert "/share/jupyter/labextensions/pathways-jupyter/" in entries[0]
        assert any(name.endswith("etc/jupyter/jupyter_server_config.d/pathways_jupyter.json") for name in names)
        assert "jax_plugins/pathways_proxy.py" in names
        for name in names:
            assert directory.encode() not in archive.read(name), name


def _without_node(directory):
    """A directory with what a build may use of the system; Node is not among it."""
    place = directory / "bin"
    place.mkdir()
    for command in ("sh", "env", "git", "uname", "cc", "ld"):
        if found := shutil.which(command):
            (place / command).symlink_to(found)
    return place
