"""The operator's image: Python, this package, and of what it needs only the packages that an operator imports.

JAX and Jupyter, most of an installation, are left out.
"""

from __future__ import annotations

import json
import re
from importlib import metadata
from pathlib import Path

from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.service import image_build
from pathways_jupyter.service.pathwaysjob.installation import COMMAND, USER
from pathways_jupyter.tunnel.relay.container import DEFAULT_IMAGE

_PACKAGE = "pathways_jupyter"
_IMPORTED = frozenset(
    ["aiohttp", "google-auth", "jupyter-core", "kubernetes", "prometheus-client", "pyyaml", "requests", "yarl"]
)
"""Requirements of this package that the operator imports."""


def plan(*, push: str = "", wheel: Path | None = None, base: str = DEFAULT_IMAGE, folder: Path) -> image_build.Plan:
    """Return how to build it; write nothing.

    Args:
      push: Repository to push to; empty keeps the image here.
      wheel: The package's own wheel; by default its release of the version that is installed here.
      base: An image with Python 3.11 or later.
      folder: Where the build context goes.

    Raises:
      ConfigError: The wheel cannot be read.
    """
    version = metadata.version(_PACKAGE)
    files: dict[str, str | bytes] = {"requirements.txt": "".join(f"{each}\n" for each in requirements())}
    source = f"{_PACKAGE}=={version}"
    if wheel is not None:
        try:
            files[wheel.name] = wheel.read_bytes()
        except OSError as error:
            raise ConfigError(
                f"{wheel} cannot be read: {error.strerror}.", hint="Build one: pip wheel --no-deps ."
            ) from error
        source, version = f"/build/{wheel.name}", wheel.name.split("-")[1]
    files["Dockerfile"] = "\n".join(
        (
            f"FROM {base}",
            "COPY . /build",
            "RUN pip install --no-cache-dir --requirement /build/requirements.txt \\",
            f" && pip install --no-cache-dir --no-deps {source}",
            f"USER {USER}:{USER}",
            f"ENTRYPOINT {json.dumps(COMMAND)}",
            "",
        )
    )
    image = f"pathways-operator:{version}"
    return image_build.plan(f"{push.rstrip('/')}/{image}" if push else image, base, folder, files, push=bool(push))


def requirements() -> list[str]:
    """Return the requirements of this package that an operator needs, with their versions."""
    found = metadata.requires(_PACKAGE) or []
    return [each for each in found if ";" not in each and re.split(r"[^\w.-]", each)[0].lower() in _IMPORTED]
