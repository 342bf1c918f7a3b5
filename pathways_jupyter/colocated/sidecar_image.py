"""Build a sidecar image with the user's packages on a released sidecar.

uv chooses their versions inside the build, constrained by what the sidecar itself has. The tag says which Python and
JAX are inside, as those of the released images do, so that a session can compare them with its kernel's before it sends
anything.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.service import image_build
from pathways_jupyter.service.images import of_image
from pathways_jupyter.service.names import SIDECAR_REPOSITORY

RELEASES: Mapping[str, str] = {"0.10.0": "20260423-python_3.12-jax_0.10.0"}
"""Tags of released sidecars, by their JAX."""
_NAME = "pathways-sidecar"


def plan(
    path: Path,
    jax: str,
    *,
    push: str = "",
    base: str = "",
    folder: Path = Path("sidecar-image"),
) -> image_build.Plan:
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
    return image_build.plan(image, base, folder, files, push=bool(push))
