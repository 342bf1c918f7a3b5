"""A pod's own packages: the Python that the cluster runs on is the user's, notebooks included."""

from __future__ import annotations

import sys
import sysconfig
from importlib import metadata
from pathlib import Path

import pytest
from wheels import wheel

SITE = Path(sysconfig.get_path("purelib"))


def phase(pod):
    return (pod or {}).get("status", {}).get("phase") in ("Succeeded", "Failed")


async def output(machine, *command):
    machine.pod("installs", *command)
    await machine.until(phase, "installs")
    return (await machine.logs("installs")).splitlines()


@pytest.mark.parametrize(
    "pip",
    ["pip", "pip3", "python -m pip", "python3 -m pip", f"{sys.executable} -m pip", f"{SITE.parents[2]}/bin/pip"],
)
async def test_what_pip_installs_in_a_pod_goes_with_the_pod(machine, tmp_path, pip):
    tiny = wheel(tmp_path, "pathways_tiny", "2.0")
    shown = "import pathways_tiny, jax; print(pathways_tiny.__file__)"
    lines = await output(machine, "sh", "-c", f"{pip} install --no-index --quiet {tiny} && python -c '{shown}'")
    assert lines[-1].startswith(str(tmp_path / "pods")), lines
    assert not [each for each in metadata.distributions(path=[str(SITE)]) if each.name == "pathways_tiny"]


async def test_another_version_of_an_installed_package_hides_it_in_the_pod_alone(machine, tmp_path):
    before = metadata.version("iniconfig")
    newer = wheel(tmp_path, "iniconfig", "99.0")
    ask = "from importlib import metadata; print(metadata.version('iniconfig'))"
    script = f'python -c "{ask}"; pip uninstall -qy iniconfig; pip install --no-index -q {newer}; python -c "{ask}"'
    lines = await output(machine, "sh", "-c", script)
    assert lines[0] == before
    assert lines[-1] == "99.0", lines
    assert metadata.version("iniconfig") == before


async def test_programs_of_a_pod_find_what_is_installed_here(machine):
    shown = "import jax, pathways_jupyter, sys; print(sys.version, pathways_jupyter.__file__, sep='\\n')"
    lines = await output(machine, "python3", "-c", shown)
    assert lines == [*sys.version.splitlines(), str(Path(__file__).parents[3] / "pathways_jupyter" / "__init__.py")]
