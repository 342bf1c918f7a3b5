"""Build what a release publishes from a clone of HEAD, check it, and rehearse its upload to an index on loopback.

``make dist`` runs it, in an environment with what tools/release-requirements.txt locks and nothing else. The variable
TAG names the release's tag, which must be that of the version.
"""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import zipfile
from pathlib import Path
from wsgiref.simple_server import make_server

ROOT = Path(__file__).parents[1]
_BEFORE_RELEASE = "There is no release yet"


def main() -> int:
    """Write sdist and wheel to ``dist``; the first step that fails raises an error."""
    dist = ROOT / "dist"
    for old in dist.glob("pathways_jupyter-*"):
        old.unlink()
    with tempfile.TemporaryDirectory(prefix="pathways-dist-") as directory:
        source, tree, beside, index = (Path(directory) / name for name in ("source", "tree", "beside", "index"))
        _run("git", "clone", "--quiet", str(ROOT), str(source))
        _python("build", "--no-isolation", "--sdist", "--wheel", "--outdir", str(beside), str(source))
        (sdist,), (other,) = beside.glob("*.tar.gz"), beside.glob("*.whl")
        source.rename(tree)
        # The published wheel is built from the sdist; in the same directory, as the bundler's numbers depend on it.
        with tarfile.open(sdist) as archive:
            archive.extractall(directory, filter="data")
        (Path(directory) / sdist.name.removesuffix(".tar.gz")).rename(source)
        _python("build", "--no-isolation", "--wheel", "--outdir", str(dist), str(source))
        sdist, (wheel,) = Path(shutil.copy2(sdist, dist)), dist.glob("*.whl")
        if different := _differences(wheel, other):
            raise SystemExit(f"The wheels of the sdist and of the tree differ in {', '.join(sorted(different))}.")
        _python("twine", "check", "--strict", str(sdist), str(wheel))
        check_tag(os.environ.get("TAG", ""), wheel.name.split("-")[1], tree)
        index.mkdir()
        _rehearse([sdist, wheel], index)
    for built in (sdist, wheel):
        print(f"{built.relative_to(ROOT)}: {built.stat().st_size / 1e6:.1f} MB")
    return 0


def _differences(one: Path, other: Path) -> set[str]:
    """Names of the files that two wheels do not have in common, or not with the same bytes."""
    contents = []
    for wheel in (one, other):
        with zipfile.ZipFile(wheel) as archive:
            contents.append({name: archive.read(name) for name in archive.namelist()})
    first, second = contents
    return {name for name in first.keys() | second.keys() if first.get(name) != second.get(name)}


def check_tag(tag: str, version: str, tree: Path) -> None:
    """Check that a tree is that of a version, and, with a tag, that nothing in it speaks of a time before the release.

    Args:
      tag: The release's tag; empty for a rehearsal.

    Raises:
      SystemExit: It is not; the message says what to change.
    """
    if tag and tag != f"v{version}":
        raise SystemExit(f"The tag is {tag}, but labextension/package.json has the version {version}.")
    # The package itself is not installed here.
    if tag and not runpy.run_path(str(tree / "pathways_jupyter" / "base" / "project.py"))["REPOSITORY"]:
        raise SystemExit(
            "A release needs the address of the repository: REPOSITORY in pathways_jupyter/base/project.py."
        )
    changelog = (tree / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = re.search(rf"(?m)^## {re.escape(version)} \((unreleased|\d{{4}}-\d\d-\d\d)\)$", changelog)
    if not heading or (tag and heading[1] == "unreleased"):
        raise SystemExit(f"CHANGELOG.md has no heading for the release with its date: ## {version} (2027-01-31).")
    pages = [tree / "README.md", *sorted((tree / "docs").glob("*.md"))] if tag else []
    if early := [page.name for page in pages if _BEFORE_RELEASE in page.read_text(encoding="utf-8")]:
        raise SystemExit(f"{', '.join(early)} say {_BEFORE_RELEASE!r}: remove the sentence.")


def _rehearse(files: list[Path], index: Path) -> None:
    """Upload to an index of our own, and download the wheel as pip does."""
    # Only where a release is built: the tests import this module too.
    import pypiserver

    application = pypiserver.app(roots=[index], password_file=".", authenticate=[], disable_fallback=True)
    with make_server("127.0.0.1", 0, application) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        anonymous = ("--username", "rehearsal", "--password", "none", "--non-interactive")
        _python("twine", "upload", "--repository-url", url, *anonymous, *map(str, files))
        got = ("--index-url", f"{url}/simple", "--only-binary", ":all:", "--dest", str(index / "got"))
        _python("pip", "--isolated", "download", "--no-deps", "--no-cache-dir", *got, "pathways_jupyter")
        server.shutdown()
    (downloaded,) = (index / "got").iterdir()
    if downloaded.read_bytes() != files[1].read_bytes():
        raise SystemExit("The wheel that pip downloaded is not the one that was uploaded.")


def _python(module: str, *arguments: str) -> None:
    _run(sys.executable, "-m", module, *arguments)


def _run(*command: str) -> None:
    print("$", *command, flush=True)
    # Node and jlpm are in the environment too, as in one that pip makes for a build.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, "PATH": path})


if __name__ == "__main__":
    sys.exit(main())
