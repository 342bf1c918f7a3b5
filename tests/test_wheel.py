"""The wheel, built without Node from a clean tree and used from an empty environment; ``make wheel`` runs this."""

import os
import re
import shutil
import subprocess
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = [pytest.mark.wheel, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[1]
SYSTEM_COMMANDS = ("sh", "env", "git", "uname", "cc", "ld")


@dataclass(frozen=True)
class Installation:
    """A virtual environment that has only the wheel and what it requires."""

    directory: Path
    wheel: Path
    environ: dict[str, str]

    def run(self, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.directory / "venv" / "bin" / command, *arguments],
            cwd=self.directory,
            env=self.environ,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def installation(machine, tmp_path_factory):
    directory = tmp_path_factory.mktemp("wheel")
    venv.create(directory / "venv", with_pip=True)
    path = f"{directory / 'venv' / 'bin'}{os.pathsep}{_without_node(directory)}"
    assert shutil.which("node", path=path) is None
    pip_needs = {"HOME": os.environ.get("HOME", str(directory))}
    environ = {**machine.environ, "PATH": path}

    def pip(*arguments: str) -> None:
        command = [directory / "venv" / "bin" / "pip", *arguments, "--quiet", "--disable-pip-version-check"]
        done = subprocess.run(
            command, cwd=directory, env=environ | pip_needs, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    pip("wheel", "--no-deps", "--wheel-dir", str(directory), str(_clean_tree(directory / "source")))
    (wheel,) = directory.glob("*.whl")
    pip("install", str(wheel))
    return Installation(directory, wheel, environ)


def test_it_holds_both_extensions_and_no_path_of_the_machine_that_built_it(installation):
    with zipfile.ZipFile(installation.wheel) as archive:
        names = archive.namelist()
        entries = [name for name in names if re.search(r"remoteEntry\.[\w.]*js$", name)]
        assert len(entries) == 1, entries
        assert "/share/jupyter/labextensions/pathways-jupyter/" in entries[0]
        assert any(name.endswith("etc/jupyter/jupyter_server_config.d/pathways_jupyter.json") for name in names)
        assert "pathways_jupyter/locale/de_DE/LC_MESSAGES/pathways_jupyter.json" in names
        for name in names:
            assert str(installation.directory).encode() not in archive.read(name), name


@pytest.mark.parametrize(
    ("kind", "name"), [("labextension", "pathways-jupyter"), ("server extension", "pathways_jupyter")]
)
def test_jupyter_lists_its_extensions(installation, kind, name):
    listed = installation.run("jupyter", *kind.split(), "list")
    lines = [line for line in (listed.stdout + listed.stderr).splitlines() if name in line]
    assert any("OK" in line for line in lines), listed.stdout + listed.stderr


def test_its_demo_connects_computes_and_leaves_nothing(installation):
    demo = installation.run("pathways-jupyter", "demo")
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert "0 Jobs, 0 pods, 0 Leases, 0 sockets, 0 session files, 0 supervisors" in demo.stdout


def _clean_tree(source: Path) -> Path:
    """Copy the tracked files as they are now, without anything that was built."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name)
    return source


def _without_node(directory: Path) -> Path:
    """Return a directory with the system's commands that a build may use; Node is not one of them."""
    place = directory / "bin"
    place.mkdir()
    for command in SYSTEM_COMMANDS:
        if found := shutil.which(command):
            (place / command).symlink_to(found)
    return place
