"""The operator's image: what is in its build context, and that this is enough for an operator."""

import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path

import pytest

from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.service import image_build
from pathways_jupyter.service.pathwaysjob import installation
from pathways_jupyter.tunnel.relay.relay_container import DEFAULT_IMAGE


def test_the_context_has_the_wheel_and_only_the_requirements_of_an_operator(tmp_path):
    wheel = tmp_path / "pathways_jupyter-1.2.3-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    planned = installation.image(DEFAULT_IMAGE, tmp_path / "context", push="example.dev/images/", wheel=wheel)
    written = {path.name: path.read_bytes() for path in image_build.write(planned)}
    assert planned.image == "example.dev/images/pathways-operator:1.2.3"
    assert written[wheel.name] == b"a wheel"
    assert f"--no-deps /build/{wheel.name}" in written["Dockerfile"].decode()
    assert f"USER {installation.USER}:" in written["Dockerfile"].decode()
    required = written["requirements.txt"].decode()
    assert "kubernetes>=" in required
    assert "jax" not in required
    assert "ipython" not in required


def test_without_a_wheel_the_release_of_this_version_is_installed(tmp_path):
    version = metadata.version("pathways_jupyter")
    planned = installation.image(DEFAULT_IMAGE, tmp_path)
    assert planned.image == f"pathways-operator:{version}"
    assert f"pathways_jupyter=={version}" in planned.files["Dockerfile"]


def test_a_wheel_that_is_not_there_is_named_before_anything_is_written(tmp_path):
    with pytest.raises(ConfigError, match=r"missing\.whl cannot be read"):
        installation.image(DEFAULT_IMAGE, tmp_path / "context", wheel=tmp_path / "missing.whl")
    assert not (tmp_path / "context").exists()


def test_hadolint_finds_nothing_in_its_dockerfile(tmp_path):
    (tmp_path / "Dockerfile").write_text(installation.image(DEFAULT_IMAGE, tmp_path).files["Dockerfile"])
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, tmp_path / "Dockerfile"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.wheel
@pytest.mark.timeout(600)
def test_its_requirements_are_all_that_an_operator_imports(tmp_path):
    venv.create(tmp_path / "env", with_pip=True)
    python = str(tmp_path / "env" / "bin" / "python")
    (tmp_path / "requirements.txt").write_text("\n".join(installation.requirements()))
    subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", tmp_path / "requirements.txt"], check=True)
    imports = (
        "import pathways_jupyter.operator.main as main, pathways_jupyter.operator.metrics_server;"
        "from pathways_jupyter.kube.client import preload; preload();"
        "import pathways_jupyter.kube.gke, google.auth.transport.requests;"
        "main.main(['--help'])"
    )
    environ = {"PYTHONPATH": str(Path(__file__).parents[2]), "HOME": str(tmp_path)}
    done = subprocess.run([python, "-c", imports], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "operator run" in done.stdout
