"""The metadata of the wheel that follow from the address of the repository: its links, and those of the README.

Hatchling runs this for each build. The package's page shows README.md on its own, where links to files of the
repository lead nowhere.
"""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_PROJECT = "pathways_jupyter/base/project.py"
_LINK = re.compile(r"(!?)(\[[^\]]*\])\((?!https?:|#)([^)]+)\)")
_PAGES = {
    "Homepage": "",
    "Documentation": "docs/index.md",
    "Changelog": "CHANGELOG.md",
    "Security": "SECURITY.md",
    "Troubleshooting": "docs/troubleshooting.md",
}


class PackageMetadata(MetadataHookInterface):  # type: ignore[misc]
    """Sets ``readme`` and ``urls``."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set both in `metadata`, the table ``[project]``."""
        root = Path(self.root)
        metadata |= described(root, runpy.run_path(str(root / _PROJECT)))


def described(root: Path, project: dict[str, Any]) -> dict[str, Any]:
    """Return ``readme`` and ``urls``, given the names of the module that has the address; without one, no links."""
    text = (root / "README.md").read_text(encoding="utf-8")
    repository, page = project["REPOSITORY"], project["page"]
    if not repository:
        return {"readme": {"content-type": "text/markdown", "text": text}, "urls": {}}
    linked = _LINK.sub(lambda found: f"{found[1]}{found[2]}({page(found[3], raw=bool(found[1]))})", text)
    urls = {name: page(path) if path else repository for name, path in _PAGES.items()}
    return {"readme": {"content-type": "text/markdown", "text": linked}, "urls": urls}
