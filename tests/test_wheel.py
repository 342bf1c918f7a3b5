"""The wheel, built without Node from a clean tree and used from an empty environment; ``make wheel`` runs this."""

import os
import re
import shutil
import subprocess
import venv
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

pytestmark = [pytest.mark.wheel, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[1]
SYSTEM_COMMANDS = ("sh", "env", "git", "uname", "cc", "ld")


@dataclass(frozen=True)
class Installation:
    """A virtual environment that has only the wheel and what it requires."""

    directory: Path
    environ: dict[str, str]

    def run(self, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.directory / "bin" / command, *arguments],
            cwd=self.directory,
            env=self.environ,
            capture_output=True,
            text=True,
            check=False,
        )

    def pip(self, *arguments: str) -> str:
        pip_needs = {"HOME": os.environ.get("HOME", str(self.directory))}
        environ = {**self.environ, **pip_needs}
        done = replace(self, environ=environ).run("pip", *arguments, "--quiet", "--disable-pip-version-check")
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def make_environment(machine, tmp_path_factory):
    """Make an empty virtual environment, on whose PATH is no Node."""

    def make(name: str) -> Installation:
        directory = tmp_path_factory.mktemp(name)
        venv.create(directory, with_pip=True)
        path = f"{directory / 'bin'}{os.pathsep}{_without_node(directory)}"
        assert shutil.which("node", path=path) is None
        return Installation(directory, {**machine.environ, "PATH": path})

    return make


@pytest.fixture(scope="module")
def installation(make_environment):
    return make_environment("all")


@pytest.fixture(scope="module")
def wheel(installation):
    source = _clean_tree(installation.directory / "source")
    installation.pip("wheel", "--no-deps", "--wheel-dir", str(installation.directory), str(source))
    (built,) = installation.directory.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def everything(installation, wheel):
    """An environment with all extras."""
    installation.pip("install", f"{wheel}[all]")
    return installation


@pytest.fixture(scope="module")
def core(make_environment, wheel):
    """An environment with the wheel alone."""
    made = make_environment("core")
    made.pip("install", str(wheel))
    return made


def test_it_holds_both_extensions_and_no_path_of_the_machine_that_built_it(installation, wheel):
    with zipfile.ZipFile(wheel) as archive:
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
def test_jupyter_lists_its_extensions(everything, kind, name):
    listed = everything.run("jupyter", *kind.split(), "list")
    lines = [line for line in (listed.stdout + listed.stderr).splitlines() if name in line]
    assert any("OK" in line for line in lines), listed.stdout + listed.stderr


def test_its_demo_connects_computes_and_leaves_nothing(everything):
    demo = everything.run("pathways-jupyter", "demo")
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert "0 Jobs, 0 Pods, 0 Leases, 0 sockets, 0 session files, 0 supervisors" in demo.stdout


CONNECT = """
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "pathways_jupyter")
shell.run_line_magic("pathways", "connect --kubeconfig {kubeconfig} --tpu tpuv6e:2x2=1")
import jax, jax.numpy as jnp

print(len(jax.devices()), jax.devices()[0].platform, float(jnp.arange(4.0).sum()))
shell.run_line_magic("pathways", "disconnect")
"""


def test_the_core_alone_connects_through_a_kubeconfig(core, cluster):
    """As a researcher installs it for whom others run the cluster; the cluster is of another environment here."""
    done = core.run("python", "-c", CONNECT.format(kubeconfig=cluster))
    assert "4 tpu 6.0" in done.stdout, done.stdout + done.stderr


def test_the_core_brings_no_part_that_has_an_extra_and_its_pip_check_is_clean(core):
    core.pip("check")
    names = "import importlib.metadata as m; print(*{each.metadata['Name'].lower() for each in m.distributions()})"
    installed = set(core.run("python", "-c", names).stdout.split())
    assert not installed & {
        "jupyterlab",
        "jupyter_server",
        "jupyter-server",
        "orbax-checkpoint",
        "asyncssh",
        "matplotlib",
    }
    jax_alone = {"jax", "jaxlib", "ml_dtypes", "numpy", "opt_einsum", "scipy"}
    assert len(installed - jax_alone - {"pathways_jupyter", "pip", "setuptools"}) <= 70, sorted(installed)


def test_the_core_names_the_command_that_installs_what_is_missing(core):
    assert core.run("python", "-c", "import pathways_jupyter.server").returncode == 0
    local = core.run("pathways-jupyter", "local", "up", "--name", "other")
    assert local.returncode != 0
    assert "pip install 'pathways_jupyter[local]'" in local.stderr


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
    place = directory / "system-commands"
    place.mkdir()
    for command in SYSTEM_COMMANDS:
        if found := shutil.which(command):
            (place / command).symlink_to(found)
    return place
