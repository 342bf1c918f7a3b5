"""Image references: their parts, which versions of Python and JAX their tags name, and the released sidecars."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from packaging.version import Version

_COMPONENT = re.compile(r"(?P<name>python|jaxlib|jax)[_-](?P<version>\d+(\.\d+)*)")


SIDECARS: Mapping[str, str] = {"0.10.0": "20260423-python_3.12-jax_0.10.0"}
"""Tags of released sidecars, by their JAX.

No sidecar can be made from a plain Python image: its server, which the workers call, and the part of jaxlib that gives
it its devices are in Google's image and in no package.
"""


@dataclass(frozen=True)
class Image:
    """A reference such as ``localhost:5000/team/server:jax-0.10.2@sha256:...``, in parts.

    Attributes:
      directory: Registry and path, with the final slash; empty for an image of the default registry.
      name: The last part of the path.
      tag: Empty where there is none.
      digest: Empty where there is none.
    """

    directory: str
    name: str
    tag: str = ""
    digest: str = ""

    @classmethod
    def parse(cls, reference: str) -> Image:
        """Take a reference apart; a port of the registry is no tag."""
        named, _, digest = reference.partition("@")
        directory, slash, last = named.rpartition("/")
        name, _, tag = last.partition(":")
        return cls(directory + slash, name, tag, digest)

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.directory}{self.name}{tag}{f'@{self.digest}' if self.digest else ''}"


@dataclass(frozen=True)
class Versions:
    """Versions by component; empty where not known."""

    python: str = ""
    jax: str = ""
    jaxlib: str = ""


def of_image(image: str) -> Versions:
    """Read tags such as ``jax-0.10.2`` and ``20260423-python_3.12-jax_0.10.0``."""
    matches = _COMPONENT.finditer(Image.parse(image).tag)
    return Versions(**{match["name"]: match["version"] for match in matches})


def differences(expected: Versions, actual: Versions) -> tuple[str, ...]:
    """Return the components with known and different versions, each as ``jax 0.10.2 here, 0.9.0 there``."""
    different = []
    for name in ("python", "jax", "jaxlib"):
        here, there = getattr(expected, name), getattr(actual, name)
        if here and there and not agree(here, there):
            different.append(f"{name} {here} here, {there} there")
    return tuple(different)


def agree(one: str, other: str, *, parts: int | None = None) -> bool:
    """Return whether two versions agree in the components that both have, or in the first `parts` of them.

    3.12 agrees with 3.12.4, and with two parts 3.12.1 does too.
    """
    few, more = one.split(".")[:parts], other.split(".")[:parts]
    length = min(len(few), len(more))
    return few[:length] == more[:length]


def sidecar_for(jax: str) -> str:
    """Return the JAX of the released sidecar that notebooks with `jax` can use; empty if there is none.

    The minor version has to be the same; what else differs is a warning when a cell runs.
    """
    return next((each for each in sorted(SIDECARS, key=Version, reverse=True) if agree(each, jax, parts=2)), "")


def no_sidecar(jax: str) -> str:
    """Return the sentences for a kernel whose JAX no released sidecar has, with what to do; empty if one has it."""
    if sidecar_for(jax):
        return ""
    minor, released = (".".join(each.split(".")[:2]) for each in (jax, max(SIDECARS, key=Version)))
    return (
        f"No sidecar is released for JAX {minor}, and none can be built without one: for %%colocated, use a kernel "
        f"and a service with JAX {released}."
    )
