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

from pathways_jupyter.actions import images
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.cli import main
from pathways_jupyter.colocated import preflight, sidecar_image
from pathways_jupyter.colocated.memory import Facts
from pathways_jupyter.service import image_build
from pathways_jupyter.service import images as service_images
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
    assert "--constraint /tmp/sidecar.txt --requirements /tmp/requirements.txt" in written["Dockerfile"]
    assert "COPY" not in written["Dockerfile"], "it would be in a layer"


def test_a_missing_file_is_named_before_anything_is_written(tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.txt cannot be read"):
        sidecar_image.plan(tmp_path / "missing.txt", "0.10.0", folder=tmp_path / "image")
    assert not (tmp_path / "image").exists()


def test_an_unknown_jax_version_says_which_are_known(wanted) -> None:
    with pytest.raises(ConfigError, match=r"0\.4\.1") as caught:
        sidecar_image.plan(wanted, "0.4.1")
    assert "JAX 0.10.0" in str(caught.value)
    assert "--base-image" in caught.value.hint


def test_of_two_released_sidecars_the_one_with_the_newer_jax_is_used(monkeypatch) -> None:
    released = {"0.10.9": "", "0.10.10": "", "0.9.2": ""}
    for each in (service_images, sidecar_image):
        monkeypatch.setattr(each, "SIDECARS", released)
    assert service_images.sidecar_for("0.10.3") == "0.10.10"
    assert service_images.sidecar_for("0.11.0") == ""
    with pytest.raises(ConfigError, match=re.escape("0.9.2, 0.10.9, 0.10.10.")):
        sidecar_image.plan(Path("requirements.txt"), "0.11.0")


def test_a_base_image_of_another_jax_is_refused(wanted) -> None:
    with pytest.raises(ConfigError, match=r"has JAX 0\.9\.1, not 0\.10\.0"):
        sidecar_image.plan(wanted, "0.10.0", base="example.dev/sidecar:2026-python_3.12-jax_0.9.1")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("six\n\n-r nothere.txt\n", r"line 3: -r nothere\.txt names another file, which the build does not have"),
        ("-cpins.txt", "line 1: -cpins.txt names another file"),
        ("-e .", "line 1: -e . is on this machine, where the build cannot read it"),
        ("./dist/mine.whl", "is on this machine"),
        ("mine @ file:///home/me/mine", "is on this machine"),
        ("--find-links wheels", "is on this machine"),
        ("import numpy as np\nprint(1)", "'import numpy as np' is not a requirement, line 2: 'print"),
        ("--extra-index-url https://me:SECRET@x.dev/simple", "token for https://x.dev/simple would be readable"),
        ("a @ git+https://SECRET@github.com/a/b", "--netrc"),
        ("--index-url https://${TOKEN_HOST}/simple", "names an environment variable"),
        ("six\njax==0.9.0 \\\n  --hash=sha256:aa", "line 2: jax==0.9.0 contradicts the sidecar, which has JAX 0.10.0"),
        ("jaxlib>=0.10.2", "contradicts the sidecar"),
        ("b @ git+ssh://git@github.com/a/b", "needs an SSH key"),
        ("--index-url http://localhost:3141/simple", r"is on this machine \(localhost\)"),
        ("http://127.0.0.1/a.whl", r"is on this machine \(127\.0\.0\.1\)"),
    ],
)
def test_a_line_that_cannot_be_built_is_named_and_nothing_is_written(text, said, tmp_path) -> None:
    (tmp_path / "wanted.txt").write_text(text)
    with pytest.raises(ConfigError, match=said) as caught:
        sidecar_image.plan(tmp_path / "wanted.txt", "0.10.0", folder=tmp_path / "image")
    assert "SECRET" not in str(caught.value)
    assert not (tmp_path / "image").exists()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_what_can_be_built_is_written_as_utf_8_without_a_mark(encoding, tmp_path) -> None:
    text = (
        "--index-url https://x.dev/simple\n# -r commented.txt\nsix ; python_version < '3'\njax[tpu]>=0.10\n"
        "jax==0.9 ; python_version < '3.11'\nnumpy~=2.0  # why\nb @ git+https://github.com/a/b\nhttps://x.dev/a.whl\n"
    )
    (tmp_path / "wanted.txt").write_text(text, encoding=encoding)
    planned = sidecar_image.plan(tmp_path / "wanted.txt", "0.10.0", folder=tmp_path / "image")
    assert planned.files["requirements.txt"] == text


def test_bytes_that_are_no_text_are_refused(tmp_path) -> None:
    (tmp_path / "wanted.txt").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ConfigError, match="is not text"):
        sidecar_image.plan(tmp_path / "wanted.txt", "0.10.0", folder=tmp_path / "image")


def test_passwords_of_an_index_are_mounted_and_in_no_layer(wanted, tmp_path) -> None:
    (tmp_path / "netrc").write_text("machine x.dev login me password SECRET")
    planned = sidecar_image.plan(wanted, "0.10.0", netrc=tmp_path / "netrc", folder=tmp_path / "image")
    assert f"--secret id=netrc,src={tmp_path}/netrc" in planned.how()[0]
    assert "--mount=type=secret,id=netrc,required=true" in planned.files["Dockerfile"]
    assert not any("SECRET" in str(text) for text in planned.files.values())


def test_a_folder_with_other_files_is_not_sent_to_the_build(wanted, tmp_path) -> None:
    (tmp_path / ".env").write_text("SECRET")
    with pytest.raises(ConfigError, match=r"has other files, which would go to the build: \.env"):
        sidecar_image.plan(wanted, "0.10.0", folder=tmp_path)
    assert not (tmp_path / "Dockerfile").exists()


def test_hadolint_finds_nothing_in_the_dockerfile(wanted, tmp_path) -> None:
    (tmp_path / "netrc").touch()
    planned = sidecar_image.plan(wanted, "0.10.0", netrc=tmp_path / "netrc", folder=tmp_path / "image")
    image_build.write(planned)
    hadolint = Path(sys.executable).with_name("hadolint")
    # The pipe's first program cannot fail, and the sidecar's own shell is not known.
    done = subprocess.run(
        [hadolint, "--ignore", "DL4006", planned.folder / "Dockerfile"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_by_default_the_sidecar_has_the_minor_version_of_the_installed_jax(wanted, tmp_path, monkeypatch) -> None:
    arguments = ["sidecar", "build", "--requirements", str(wanted), "--folder", str(tmp_path / "image"), "--dry-run"]
    monkeypatch.setattr(images, "version", lambda name: "0.10.2")
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    assert "JAX 0.10.2 is installed here, and the released sidecar has 0.10.0" in done.output
    monkeypatch.setattr(images, "version", lambda name: "0.12.0")
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 1
    assert "No sidecar with JAX 0.12.0 is known here; released are those of JAX 0.10.0" in done.output
    assert "use a kernel and a service with JAX 0.10." in done.output


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
    advice = preflight.install_hint(["six"], Facts("python", False, {"jax": jax}, 1, "", "", "", frozenset(), ""))
    _, *arguments = shlex.split(advice.rpartition(": ")[2].replace("IMAGE", f"mine/sidecar:1-python_3.12-jax_{jax}"))
    done = CliRunner().invoke(main, [*arguments, "--dry-run"])
    assert done.exit_code == 0, done.output
    assert f"jax_{jax}" in done.output
