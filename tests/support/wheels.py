"""Wheels of one empty module, to install without an index."""

from __future__ import annotations

import zipfile
from pathlib import Path


def wheel(directory: Path, name: str, version: str) -> Path:
    """Write a wheel that gives the module `name`."""
    path = directory / f"{name}-{version}-py3-none-any.whl"
    about = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", f"VERSION = {version!r}\n")
        archive.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "".join(f"{each},,\n" for each in archive.namelist()))
    return path
