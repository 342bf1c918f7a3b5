"""Build a sidecar image with the user's packages on a released sidecar.

uv chooses their versions inside the build, constrained by what the sidecar itself has. The tag says which Python and
JAX are inside, as those of the released images do, so that a session can compare them with its kernel's before it sends
anything.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pathways_jupyter.base.errors import ConfigError, PathwaysError
from pathways_jupyter.service.images import of_image
from pathways_jupyter.service.names import SIDECAR_REPOSITORY

RUNNERS = ("docker", "podman")
RELEASES: Mapping[str, str] = {"0.10.0": "20260423-python_3.12-jax_0.10.0"}
"""Tags of released sidecars, by their JAX."""
_NAME = "pathways-sidecar"


@dataclass(frozen=True)
class Plan:
    """An image that can be built.

    Attributes:
      image: Its full name, with the tag.
      base: The released sidecar below it.
      folder: The build context.
      files: What is written there, by name.
      commands: What builds, and pushes, the image.
      runner: ``docker`` or ``podman``; empty where neither works.
      problem: Why neither does, in one line.
    """

    image: str
    base: str
    folder: Path
    files: Mapping[str, str] = field(repr=False)
    commands: tuple[tuple[str, ...], ...]
    runner: str
    problem: str = ""

    def how(self) -> list[str]:
        """Return the commands as one would type them."""
        return [shlex.join(command) for command in self.commands]


def plan(
    path: Path,
    jax: str,
    *,
    push: str = "",
    base: str = "",
    folder: Path = Path("sidecar-image"),
) -> Plan:
    """Check everything that can be checked without building; write nothing.

    Args:
      path: The user's requirements.
      jax: The JAX version.
      push: Repository to push to, e.g. ``us-docker.pkg.dev/PROJECT/REPOSITORY``; empty keeps the image here.
      base: The sidecar image to build on; empty for the released one of that JAX version.
      folder: Where the build context goes.

    Raises:
      ConfigError: No released sidecar has that JAX version, or the requirements cannot be read.
    """
    if not base and jax not in RELEASES:
        raise ConfigError(
            f"No released sidecar with JAX {jax} is known here.",
            hint=f"Known: {', '.join(sorted(RELEASES))}. Name another with --base-image REPOSITORY/sidecar:TAG.",
        )
    base = base or f"{SIDECAR_REPOSITORY}/sidecar:{RELEASES[jax]}"
    versions = of_image(base)
    if not (versions.python and versions.jax):
        raise ConfigError(
            f"The tag of {base} does not say its Python and JAX versions.",
            hint=f"It should end like this: -python_3.12-jax_{jax}",
        )
    if versions.jax != jax:
        raise ConfigError(f"{base} has JAX {versions.jax}, not {jax}.", hint=f"--jax-version {versions.jax}")
    try:
        requirements = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.", hint="Name a file of requirements.") from error
    tag = f"{time.strftime('%Y%m%d')}-python_{versions.python}-jax_{jax}"
    image = f"{push.rstrip('/')}/{_NAME}:{tag}" if push else f"{_NAME}:{tag}"
    runner, problem = _runner()
    program = runner or RUNNERS[0]
    commands: list[tuple[str, ...]] = [(program, "build", "--platform", "linux/amd64", "--tag", image, str(folder))]
    if push:
        commands.append((program, "push", image))
    dockerfile = [
        f"FROM {base}",
        f'LABEL pathways-jupyter.python="{versions.python}" pathways-jupyter.jax="{versions.jax}"',
        "WORKDIR /app",
        "COPY requirements.txt requirements.txt",
        # What the sidecar has must stay as it is: a requirement that contradicts it fails the build, with uv's reason.
        "RUN uv pip freeze | grep == > sidecar.txt \\",
        " && uv pip install --no-cache --constraint sidecar.txt --requirements requirements.txt && uv pip check",
    ]
    files = {"Dockerfile": "".join(f"{line}\n" for line in dockerfile), "requirements.txt": requirements}
    return Plan(image, base, folder, files, tuple(commands), runner, problem)


def write(planned: Plan) -> list[Path]:
    """Write the build context; return its files."""
    planned.folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in planned.files.items():
        path = planned.folder / name
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


def build(planned: Plan) -> None:
    """Build the image, and push it if the plan says so; the program's output goes to this process's own.

    Raises:
      PathwaysError: There is no program that builds images here, or it failed.
    """
    if not planned.runner:
        raise PathwaysError(
            f"The image was not built: {planned.problem}",
            hint=f"Copy the folder {planned.folder} to a machine that can, and run: {' && '.join(planned.how())}",
        )
    for command in planned.commands:
        done = subprocess.run(command, check=False)
        if done.returncode:
            raise PathwaysError(
                f"{command[0]} {command[1]} failed with exit code {done.returncode}.",
                hint=f"Its own output above says why. To try again: {shlex.join(command)}",
            )


def _runner() -> tuple[str, str]:
    """Return the program that builds images here; or none, and why."""
    problems = []
    for name in RUNNERS:
        if shutil.which(name):
            # The client alone can do nothing: docker builds in a daemon, on some machines podman in a virtual one.
            info = subprocess.run([name, "info"], capture_output=True, text=True, check=False)
            if info.returncode == 0:
                return name, ""
            said = info.stderr.strip().splitlines() or [f"exit code {info.returncode}"]
            problems.append(f"{name} is installed here, but does not work: {said[-1].removeprefix('ERROR: ')}")
    return "", " ".join(problems) or "neither docker nor podman is installed here."
