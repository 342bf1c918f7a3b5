from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.cli import main
from pathways_jupyter.colocated import preflight, sidecar_image
from pathways_jupyter.colocated.memory import Facts
from pathways_jupyter.service import image_build
from pathways_jupyter.service.images import Versions, of_image


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    path = tmp_path_factory.mktemp("wanted") / "requirements.txt"
    path.write_text("six==1.17.0\n")
    return path


@pytest.fixture(scope="module")
def planned(wanted, tmp_path_factory):
    folder = tmp_path_factory.mktemp("context") / "image"
    return sidecar_image.plan(wanted, "0.10.0", push="example.dev/images/", folder=folder)


def test_the_tag_carries_the_versions_of_python_and_jax(planned) -> None:
    assert re.fullmatch(r"example\.dev/images/pathways-sidecar:\d{8}-python_3\.12-jax_0\.10\.0", planned.image)
    assert of_image(planned.image) == of_image(planned.base) == Versions("3.12", "0.10.0")
    assert [command[1] for command in planned.commands] == ["build", "push"]


def test_the_build_context_installs_the_requirements_on_the_released_sidecar(planned) -> None:
    written = {path.name: path.read_text() for path in image_build.write(planned)}
    assert written["requirements.txt"] == "six==1.17.0\n"
    assert written["Dockerfile"].startswith(f"FROM {planned.base}\n")
    assert "--constraint sidecar.txt --requirements requirements.txt" in written["Dockerfile"]


def test_a_missing_file_is_named_before_anything_is_written(tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.txt cannot be read"):
        sidecar_image.plan(tmp_path / "missing.txt", "0.10.0", folder=tmp_path / "image")
    assert not (tmp_path / "image").exists()


def test_an_unknown_jax_version_says_which_are_known(wanted) -> None:
    with pytest.raises(ConfigError, match=r"0\.4\.1") as caught:
        sidecar_image.plan(wanted, "0.4.1")
    assert "0.10.0" in caught.value.hint
    assert "--base-image" in caught.value.hint


def test_a_base_image_of_another_jax_is_refused(wanted) -> None:
    with pytest.raises(ConfigError, match=r"has JAX 0\.9\.1, not 0\.10\.0"):
        sidecar_image.plan(wanted, "0.10.0", base="example.dev/sidecar:2026-python_3.12-jax_0.9.1")


def build_on(path: str, wanted, folder) -> subprocess.CompletedProcess[str]:
    """Runs the command with these directories to find programs in."""
    command = [sys.executable, "-m", "pathways_jupyter", "sidecar", "build", "--jax-version", "0.10.0"]
    return subprocess.run(
        [*command, "--requirements", str(wanted), "--folder", str(folder)],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def assert_says_how_elsewhere(done: subprocess.CompletedProcess[str], folder, why: str) -> None:
    """It ended with one line that says why, and one that says how to build on another machine."""
    assert done.returncode == 1
    assert done.stdout == ""
    error, hint = done.stderr.splitlines()
    assert re.match(rf"Error: The image was not built: {why}", error)
    assert re.search(rf"docker build --platform linux/amd64 --tag pathways-sidecar:\S+ {folder}$", hint)
    assert (folder / "Dockerfile").exists()


def test_without_docker_and_podman_it_says_how(wanted, tmp_path) -> None:
    done = build_on(str(tmp_path), wanted, tmp_path / "image")
    assert_says_how_elsewhere(done, tmp_path / "image", "neither docker nor podman is installed here")


def test_docker_without_its_daemon_is_named_and_it_says_how(wanted, tmp_path) -> None:
    docker = shutil.which("docker")
    if docker is None:
        pytest.skip("the docker client is not installed")
    if subprocess.run([docker, "info"], capture_output=True, check=False).returncode == 0:
        pytest.skip("docker's daemon runs here; this is about a client without it")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "docker").symlink_to(docker)
    done = build_on(str(tmp_path / "bin"), wanted, tmp_path / "image")
    assert_says_how_elsewhere(done, tmp_path / "image", "docker is installed here, but does not work: .*daemon")


def test_the_program_that_builds_is_run_with_the_context(wanted, tmp_path, monkeypatch) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    docker = programs / "podman"
    docker.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/ran\n')
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    planned = sidecar_image.plan(wanted, "0.10.0", push="example.dev/images", folder=tmp_path / "image")
    image_build.build(planned)
    _, first, second = (tmp_path / "ran").read_text().splitlines()
    assert first.endswith(f"--tag {planned.image} {planned.folder}")
    assert second == f"push {planned.image}"


def test_the_command_line_writes_the_context_and_reports_what_it_would_run(wanted, tmp_path) -> None:
    folder = tmp_path / "image"
    arguments = ["--requirements", str(wanted), "--jax-version", "0.10.0", "--folder", str(folder), "--dry-run"]
    done = CliRunner().invoke(main, ["sidecar", "build", *arguments, "--json"])
    assert done.exit_code == 0, done.output
    shown = json.loads(done.output)
    assert [Path(each).name for each in shown["files"]] == ["Dockerfile", "requirements.txt"]
    assert shown["built"] is False
    assert (folder / "Dockerfile").exists()


@pytest.mark.parametrize("jax", ["0.10.0", "0.10.2"])
def test_the_command_that_a_missing_package_leads_to_runs_as_it_is_printed(jax, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("requirements.txt").write_text("six\n")
    advice = preflight.advice(["six"], Facts("python", False, {"jax": jax}, 1, "", "", "", frozenset(), ""))
    _, *arguments = shlex.split(advice.rpartition(": ")[2].replace("IMAGE", f"mine/sidecar:1-python_3.12-jax_{jax}"))
    done = CliRunner().invoke(main, [*arguments, "--dry-run"])
    assert done.exit_code == 0, done.output
    assert f"jax_{jax}" in done.output
