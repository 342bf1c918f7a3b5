"""Read from an image's tag which versions of Python and JAX it contains."""

from __future__ import annotations

import re
from dataclasses import dataclass

_COMPONENT = re.compile(r"(?P<name>python|jaxlib|jax)[_-](?P<version>\d+(\.\d+)*)")


@dataclass(frozen=True)
class Versions:
    """Versions by component; empty where not known."""

    python: str = ""
    jax: str = ""
    jaxlib: str = ""


def of_image(image: str) -> Versions:
    """Read tags such as ``jax-0.10.2`` and ``20260423-python_3.12-jax_0.10.0``."""
    last = image.partition("@")[0].rpartition("/")[2]
    tag = last.partition(":")[2]
    return Versions(**{match["name"]: match["version"] for match in _COMPONENT.finditer(tag)})


def differences(wanted: Versions, found: Versions) -> tuple[str, ...]:
    """Return the components with known and different versions, each as ``jax 0.10.2 here, 0.9.0 there``."""
    different = []
    for name in ("python", "jax", "jaxlib"):
        here, there = getattr(wanted, name), getattr(found, name)
        if here and there and not _agree(here, there):
            different.append(f"{name} {here} here, {there} there")
    return tuple(different)


def _agree(one: str, other: str) -> bool:
    """Whether two versions agree in the components that both have (3.12 agrees with 3.12.4)."""
    parts, more = one.split("."), other.split(".")
    length = min(len(parts), len(more))
    return parts[:length] == more[:length]
