"""Image references: their parts, and which versions of Python and JAX their tags name."""

from __future__ import annotations

import re
from dataclasses import dataclass

_COMPONENT = re.compile(r"(?P<name>python|jaxlib|jax)[_-](?P<version>\d+(\.\d+)*)")


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
    found = _COMPONENT.finditer(Image.parse(image).tag)
    return Versions(**{match["name"]: match["version"] for match in found})


def differences(wanted: Versions, found: Versions) -> tuple[str, ...]:
    """Return the components with known and different versions, each as ``jax 0.10.2 here, 0.9.0 there``."""
    different = []
    for name in ("python", "jax", "jaxlib"):
        here, there = getattr(wanted, name), getattr(found, name)
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
