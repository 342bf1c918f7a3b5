"""The program that stands for each container image.

There is no registry on a laptop. The images of Pathways stand for programs of this package; any other image only stands
for the machine itself, and its container must say which command to run. As in a registry, an unknown tag is an error: a
client that derives a wrong image fails here, and not only on a real cluster.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata

from pathways_jupyter.errors import PathwaysError
from pathways_jupyter.local import programs
from pathways_jupyter.service import names
from pathways_jupyter.service.images import Image


class ImageError(PathwaysError):
    """The image does not exist here; the message goes into the pod's status."""


@dataclass(frozen=True)
class Program:
    """The program of a container.

    Attributes:
      main: Called with the arguments in a fork; None to run the arguments as a command.
      warm: Fork from the process that has imported JAX, unless the container sets variables for JAX.
    """

    main: Callable[[Sequence[str]], int] | None = None
    warm: bool = False


_COMMAND = Program()

OPERATOR_IMAGE = "operator"
LAB_IMAGE = "lab"
_SIDECAR_IMAGE = "sidecar"

_PROGRAMS: Mapping[str, Program] = {
    names.SERVER_IMAGE: Program(programs.worker),
    names.PROXY_IMAGE: Program(programs.proxy, warm=True),
    _SIDECAR_IMAGE: Program(programs.sidecar, warm=True),
    OPERATOR_IMAGE: Program(programs.operator),
    LAB_IMAGE: Program(programs.lab),
}


def resolve(image: str, command: Sequence[str], args: Sequence[str]) -> tuple[Program, list[str]]:
    """The program to run for a container, and its arguments; for a command, the first argument is the command.

    Raises:
      ImageError: There is no such image.
    """
    named = Image.parse(image)
    repository = named.name
    program = _PROGRAMS.get(repository)
    if program is not None and (named.digest or (named.tag or "latest") not in tags(repository)):
        raise ImageError(f'failed to pull image "{image}": not found; tags here: {", ".join(tags(repository))}')
    if command:
        return _COMMAND, [*command, *args]
    if program is None:
        raise ImageError(f'failed to pull image "{image}": not found; a local cluster runs it only with a command')
    if repository == names.SERVER_IMAGE and "--node_type=resource_manager" in args:
        program = Program(programs.resource_manager)
    return program, list(args)


def tags(repository: str) -> tuple[str, ...]:
    """The tags that an image of Pathways has here."""
    jax = metadata.version("jax")
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    released = (f"python_{python}-jax_{jax}",) if repository == _SIDECAR_IMAGE else ()
    return (f"jax-{jax}", *released, "latest")


def reference(name: str) -> str:
    """The full name of an image of Pathways, with the tag of its JAX version."""
    return f"{names.IMAGE_REPOSITORY}/{name}:{tags(name)[0]}"
