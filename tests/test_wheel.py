"""The wheel, built without Node from a clean tree and used from an empty environment; ``make wheel`` runs this."""

import re
import subprocess
import zipfile

import pytest
from installations import ROOT, Installation, clean_tree

from pathways_jupyter.base import pages

pytestmark = [pytest.mark.wheel, pytest.mark.timeout(1800)]

JAX_ALONE = {"jax", "jaxlib", "ml_dtypes", "numpy", "opt_einsum", "scipy"}


@pytest.fixture(scope="module")
def make_environment(machine, tmp_path_factory):
    return lambda name: Installation.make(tmp_path_factory.mktemp(name), machine.environ)


@pytest.fixture(scope="module")
def installation(make_environment):
    return make_environment("all")


@pytest.fixture(scope="module")
def wheel(installation):
    source = clean_tree(installation.directory / "source")
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
        # In the sources they are links.
        for page in pages.PAGES:
            there = archive.read(f"pathways_jupyter/pages/{page}.md")
            assert there == (ROOT / "docs" / f"{page}.md").read_bytes(), page
        for name in names:
            assert str(installation.directory).encode() not in archive.read(name), name


@pytest.mark.parametrize(
    ("kind", "name"), [("labextension", "pathways-jupyter"), ("server extension", "pathways_jupyter")]
)
def test_with_all_extras_jupyter_lists_its_extensions(everything, kind, name):
    listed = everything.run("jupyter", *kind.split(), "list")
    lines = [line for line in (listed.stdout + listed.stderr).splitlines() if name in line]
    assert any("OK" in line for line in lines), listed.stdout + listed.stderr


def test_with_all_extras_pip_check_is_clean(everything):
    everything.pip("check")


def test_its_demo_connects_computes_and_leaves_nothing(everything):
    demo = everything.run("pathways-jupyter", "demo")
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert "0 Jobs, 0 Pods, 0 Leases, 0 sockets, 0 session files, 0 supervisors" in demo.stdout


@pytest.fixture(scope="module")
def older(make_environment, wheel):
    """An environment with JupyterLab 4.4 and Notebook 7.4 from before the wheel; and the versions of then."""
    made = make_environment("older")
    made.pip("install", "jupyterlab==4.4.*", "notebook==7.4.*")
    before = made.versions()
    made.pip("install", f"{wheel}[local]")
    return made, before


def test_beside_an_older_jupyterlab_it_replaces_nothing(older):
    made, before = older
    assert before.items() <= made.versions().items()
    made.pip("check")
    listed = made.run("jupyter", "labextension", "list")
    assert "not compatible" not in listed.stdout + listed.stderr


def test_the_sidebar_and_the_magics_work_in_an_older_jupyterlab(older):
    older[0].open_first_notebook(ROOT / "examples" / "notebooks")


def test_uv_installs_the_same(core, make_environment, wheel):
    made = make_environment("uv")
    made.pip("install", "uv")
    own = made.directory / "own"
    python = str(own / "bin" / "python")
    # Without a name it takes a Python that it downloads.
    for words in (
        ["venv", "--python", str(made.directory / "bin" / "python"), str(own)],
        ["pip", "install", "--python", python, str(wheel)],
        ["pip", "check", "--python", python],
    ):
        done = made.run("uv", *words)
        assert done.returncode == 0, done.stderr
    assert Installation(own, made.environ).versions() == core.versions()


def test_pipx_installs_the_command_line(machine, make_environment, wheel):
    made = make_environment("pipx")
    made.pip("install", "pipx")
    place = {"PIPX_HOME": str(made.directory / "pipx"), "PIPX_BIN_DIR": str(made.directory / "commands")}
    done = Installation(made.directory, {**made.environ, **place}).run("pipx", "install", str(wheel))
    assert done.returncode == 0, done.stderr
    shown = subprocess.run(
        [made.directory / "commands" / "pathways-jupyter", "--version"], capture_output=True, text=True
    )
    assert shown.returncode == 0, shown.stderr


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
    names = {name.lower().replace("-", "_") for name in core.versions()}
    assert not names & {"jupyterlab", "jupyter_server", "orbax_checkpoint", "asyncssh", "matplotlib"}
    assert len(names - JAX_ALONE - {"pathways_jupyter"}) <= 70, sorted(names)


def test_the_core_names_the_command_that_installs_what_is_missing(core):
    assert core.run("python", "-c", "import pathways_jupyter.server").returncode == 0
    local = core.run("pathways-jupyter", "local", "up", "--name", "other")
    assert local.returncode != 0
    assert "pip install 'pathways_jupyter[local]'" in local.stderr
