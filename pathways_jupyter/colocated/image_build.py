"""Builds a sidecar image with the user's packages: a released sidecar below, exact versions on top.

The tag says which Python and JAX are inside, in the way that the released images do, so that a session can compare them
with its kernel's before it sends anything.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pathways_jupyter.colocated import image_requirements as requirements
from pathways_jupyter.errors import ConfigError, PathwaysError
from pathways_jupyter.service.images import Versions, of_image
from pathways_jupyter.service.names import SIDECAR_REPOSITORY

RUNNERS = ("docker", "podman")
RELEASES: Mapping[str, str] = {"0.10.0": "20260423-python_3.12-jax_0.10.0"}
"""Tags of released sidecars, by their JAX."""
_NAME = "pathways-sidecar"


class ConflictError(ConfigError):
    """Requirements contradict the sidecar's own; nothing was built.

    Args:
      conflicts: Every one of them.
    """

    def __init__(self, conflicts: Sequence[requirements.Conflict]) -> None:
        self.conflicts = tuple(conflicts)
        super().__init__(
            "The sidecar cannot have these packages: " + "; ".join(map(str, conflicts)) + ".",
            hint="Change them in requirements.txt, or choose another --jax-version.",
        )


@dataclass(frozen=True)
class Plan:
    """An image that can be built.

    Attributes:
      image: Its full name, with the tag.
      base: The released sidecar below it.
      folder: The build context.
      files: What is written there, by name.
      locked: Exact versions that are installed.
      commands: What builds, and pushes, the image.
      runner: ``docker`` or ``podman``; empty where neither works.
      problem: Why neither does, in one line.
    """

    image: str
    base: str
    folder: Path
    files: Mapping[str, str] = field(repr=False)
    locked: tuple[str, ...]
    commands: tuple[tuple[str, ...], ...]
    runner: str
    problem: str = ""

    def how(self) -> list[str]:
        """The commands as one would type them."""
        return [shlex.join(command) for command in self.commands]


def plan(
    path: Path,
    jax: str,
    *,
    push: str = "",
    base: str = "",
    folder: Path = Path("sidecar-image"),
    server: Path | None = None,
) -> Plan:
    """Checks everything that can be checked without building; writes nothing.

    Args:
      path: The user's requirements.
      jax: The JAX version.
      push: Repository to push to, e.g. ``us-docker.pkg.dev/PROJECT/REPOSITORY``; empty keeps the image here.
      base: The sidecar image to build on; empty for the released one of that JAX version.
      folder: Where the build context goes.
      server: A file with the exact versions that the base image has, as ``pip freeze`` prints them there.

    Raises:
      ConfigError: No released sidecar has that JAX version, or the requirements cannot be read.
      ConflictError: Requirements contradict the sidecar's own.
      PathwaysError: The requirements contradict each other.
    """
    base = base or _released(jax)
    versions = of_image(base)
    if not (versions.python and versions.jax):
        raise ConfigError(
            f"The tag of {base} does not say its Python and JAX versions.",
            hint=f"It should end like this: -python_3.12-jax_{jax}",
        )
    if versions.jax != jax:
        raise ConfigError(f"{base} has JAX {versions.jax}, not {jax}.", hint=f"--jax-version {versions.jax}")
    wanted = requirements.read(path)
    needed = requirements.read(server) if server else requirements.server_requirements(jax)
    found = requirements.conflicts(wanted, needed, versions.python)
    if found:
        raise ConflictError(found)
    locked = requirements.lock(wanted, needed, versions.python)
    tag = f"{time.strftime('%Y%m%d')}-python_{versions.python}-jax_{jax}"
    image = f"{push.rstrip('/')}/{_NAME}:{tag}" if push else f"{_NAME}:{tag}"
    runner, problem = _runner()
    program = runner or RUNNERS[0]
    commands: list[tuple[str, ...]] = [(program, "build", "--platform", "linux/amd64", "--tag", image, str(folder))]
    if push:
        commands.append((program, "push", image))
    files = {
        "Dockerfile": _dockerfile(base, versions),
        "requirements.txt": "".join(f"{line}\n" for line in wanted),
        "requirements.lock": "".join(f"{line}\n" for line in locked),
    }
    return Plan(image, base, folder, files, tuple(locked), tuple(commands), runner, problem)


def write(planned: Plan) -> list[Path]:
    """Writes the build context; returns its files."""
    planned.folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in planned.files.items():
        path = planned.folder / name
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


def build(planned: Plan) -> None:
    """Builds the image, and pushes it if that was asked for; what the program says goes to this process's output.

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
    """The program that builds images here; or none, and why."""
    problems = []
    for name in RUNNERS:
        if shutil.which(name):
            # The client alone can do nothing: docker builds in a daemon, on some machines podman in a virtual one.
            asked = subprocess.run([name, "info"], capture_output=True, text=True, check=False)
            if asked.returncode == 0:
                return name, ""
            said = asked.stderr.strip().splitlines() or [f"exit code {asked.returncode}"]
            problems.append(f"{name} is installed here, but does not work: {said[-1].removeprefix('ERROR: ')}")
    return "", " ".join(problems) or "neither docker nor podman is installed here."


def _released(jax: str) -> str:
    if jax not in RELEASES:
        raise ConfigError(
            f"No released sidecar with JAX {jax} is known here.",
            hint=f"Known: {', '.join(sorted(RELEASES))}. Name another with --base-image REPOSITORY/sidecar:TAG.",
        )
    return f"{SIDECAR_REPOSITORY}/sidecar:{RELEASES[jax]}"


def _dockerfile(base: str, versions: Versions) -> str:
    lines = [
        f"FROM {base}",
        f'LABEL pathways-jupyter.python="{versions.python}" pathways-jupyter.jax="{versions.jax}"',
        "WORKDIR /app",
        "COPY requirements.lock requirements.lock",
        # Without dependencies: the lock has them all, and what the sidecar needs must stay as it is.
        "RUN uv pip install --no-cache --no-deps --requirements requirements.lock && uv pip check",
    ]
    return "\n".join(lines) + "\n"
