"""Build a container image: a folder with a Dockerfile, and the commands of docker or podman that build it."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from pathways_jupyter.base.errors import ConfigError, PathwaysError
from pathways_jupyter.base.text import reason, some

_RUNNERS = ("docker", "podman")


@dataclass(frozen=True)
class Plan:
    """An image that can be built.

    Attributes:
      image: Its full name, with the tag.
      base: The image below it.
      folder: The build context.
      files: What is written there, by name.
      commands: What builds, and pushes, the image.
      runner: ``docker`` or ``podman``; empty where neither works.
      problem: Why neither does, in one line.
    """

    image: str
    base: str
    folder: Path
    files: Mapping[str, str | bytes] = field(repr=False)
    commands: tuple[tuple[str, ...], ...]
    runner: str
    problem: str = ""

    def how(self) -> list[str]:
        """Return the commands as one would type them."""
        return [shlex.join(command) for command in self.commands]


def plan(
    image: str,
    base: str,
    folder: Path,
    files: Mapping[str, str | bytes],
    *,
    push: bool,
    secrets: Mapping[str, Path] = MappingProxyType({}),
) -> Plan:
    """Return how to build an image here; writes nothing.

    Args:
      secrets: Files that the build may mount and the image does not keep, by the name that the Dockerfile uses.

    Raises:
      ConfigError: The folder has other files, which would become part of the build context.
    """
    others = sorted(each.name for each in folder.iterdir() if each.name not in files) if folder.is_dir() else []
    if others:
        raise ConfigError(
            f"{folder} has other files, which would go to the build: {some(others)}.",
            hint="Name a new directory with --folder.",
        )
    runner, problem = _runner()
    program = runner or _RUNNERS[0]
    mounted = [word for name, path in secrets.items() for word in ("--secret", f"id={name},src={path}")]
    build = (program, "build", "--platform", "linux/amd64", *mounted, "--tag", image, str(folder))
    commands = (build, (program, "push", image)) if push else (build,)
    return Plan(image, base, folder, files, commands, runner, problem)


def write(planned: Plan) -> list[Path]:
    """Write the build context; return its files.

    Raises:
      ConfigError: The folder cannot be written.
    """
    written = []
    try:
        planned.folder.mkdir(parents=True, exist_ok=True)
        for name, text in planned.files.items():
            path = planned.folder / name
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
            written.append(path)
    except OSError as error:
        raise ConfigError(
            f"{planned.folder} cannot be written: {error.strerror}.", hint="Name another directory with --folder."
        ) from error
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
    for name in _RUNNERS:
        if shutil.which(name):
            # The client alone can do nothing: docker builds in a daemon, on some machines podman in a virtual one.
            info = subprocess.run([name, "info"], capture_output=True, text=True, check=False)
            if info.returncode == 0:
                return name, ""
            said = reason(info.stderr, f"exit code {info.returncode}").removeprefix("ERROR: ")
            problems.append(f"{name} is installed here, but does not work: {said}.")
    return "", " ".join(problems) or "neither docker nor podman is installed here."
