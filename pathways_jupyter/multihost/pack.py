"""What is sent: the files of a directory with the hash of each, without what .gitignore and ``--exclude`` name."""

from __future__ import annotations

import functools
import json
import os
import stat
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pathways_jupyter.multihost.errors import PackError
from pathways_jupyter.multihost.remote.content_store import hasher
from pathways_jupyter.multihost.remote.tree import DIRECTORY, FILE, LINK

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

ALWAYS_EXCLUDED = (".git/", "__pycache__/", ".ipynb_checkpoints/", "/multihost-runs/")
_READ_BYTES = 1024 * 1024
_ATTEMPTS = 3
_THREADS = 4

Stamp = tuple[int, int, int]
_Rules = Sequence[tuple[str, "GitIgnoreSpec"]]


@dataclass(frozen=True)
class Entry:
    """One file, link or directory.

    Attributes:
      path: Relative to the packed directory, with ``/``.
      content: Hash of a file, target of a link; empty for a directory.
      size: Bytes of a file.
    """

    kind: str
    path: str
    mode: int = 0o755
    content: str = ""
    size: int = 0


@dataclass(frozen=True)
class Packed:
    """A directory as it was when it was packed.

    Attributes:
      skipped: What was left out because it cannot be sent, with the reason: links that lead out, sockets, devices.
    """

    root: Path
    entries: tuple[Entry, ...]
    skipped: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[Entry, ...]:
        """The entries that have content."""
        return tuple(each for each in self.entries if each.kind == FILE)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(each.size for each in self.files)

    @functools.cached_property
    def listing(self) -> bytes:
        """The entries as hosts read them; made once for all of them."""
        entries = [[each.kind, each.path, each.mode, each.content] for each in self.entries]
        return zlib.compress(json.dumps(entries).encode(), 1)


def pack(root: Path, exclude: Sequence[str] = ()) -> Packed:
    """List and hash the files below `root`; blocks.

    Args:
      exclude: Patterns as in .gitignore; they win over the files' own.

    Raises:
      PackError: There is no such directory, a file cannot be read, or a file changes all the time.
    """
    import pathspec

    root = root.expanduser().resolve()
    if not root.is_dir():
        raise PackError(f"There is no directory {root}.", hint="Name the directory of your code with --dir.")
    rules = [("", pathspec.GitIgnoreSpec.from_lines([*ALWAYS_EXCLUDED, *exclude]))]
    found: list[Entry] = []
    skipped: list[str] = []
    try:
        found.extend(_walk(root, "", rules, skipped))
    except OSError as error:
        raise PackError(
            f"{error.filename} cannot be read: {error.strerror}.",
            hint="Fix its permissions, or leave it out: --exclude.",
        ) from error
    with ThreadPoolExecutor(_THREADS) as threads:
        entries = threads.map(lambda each: hashed(root, each) if each.kind == FILE else each, found)
        return Packed(root, tuple(entries), tuple(skipped))


def hashed(root: Path, entry: Entry) -> Entry:
    """Return `entry` with hash and size of its file as it is now.

    Raises:
      PackError: It cannot be read, or it changes each time that it is read.
    """
    path = root / entry.path
    for _ in range(_ATTEMPTS):
        digest, size = hasher(), 0
        try:
            with path.open("rb", buffering=0) as file:
                before = _stamp(file.fileno())
                while data := file.read(_READ_BYTES):
                    digest.update(data)
                    size += len(data)
                after = _stamp(file.fileno())
        except OSError as error:
            raise PackError(
                f"{path} cannot be read: {error.strerror}.", hint="Fix its permissions, or leave it out: --exclude."
            ) from error
        if before == after and size == after[1]:
            mode = stat.S_IMODE(path.stat().st_mode) & 0o777
            return Entry(FILE, entry.path, mode, digest.hexdigest(), size)
    raise changing(path)


def changing(path: Path) -> PackError:
    """Return the error about a file that changes while it is packed."""
    return PackError(
        f"{path} changed while it was packed.", hint="Stop what writes to it, or leave it out: --exclude NAME."
    )


def _walk(root: Path, folder: str, rules: _Rules, skipped: list[str]) -> Iterator[Entry]:
    """Yield what is in `folder`, sorted; ignored directories are not entered."""
    here = root / folder
    ignoring = here / ".gitignore"
    if ignoring.is_file():
        import pathspec

        text = ignoring.read_text(encoding="utf-8", errors="replace")
        rules = [*rules, (folder, pathspec.GitIgnoreSpec.from_lines(text.splitlines()))]
    for each in sorted(os.scandir(here), key=lambda found: found.name):
        path = f"{folder}/{each.name}" if folder else each.name
        is_folder = each.is_dir(follow_symlinks=False)
        if _ignored(f"{path}/" if is_folder else path, rules):
            continue
        if each.is_symlink():
            target = os.readlink(each.path)
            inside = os.path.relpath(os.path.realpath(os.path.join(here, target)), root)
            if inside == ".." or inside.startswith("../"):
                skipped.append(f"{path} (a link out of the directory)")
            else:
                relative = os.path.relpath(os.path.join(root, inside), here) if os.path.isabs(target) else target
                yield Entry(LINK, path, content=relative)
        elif is_folder:
            yield Entry(DIRECTORY, path)
            yield from _walk(root, path, rules, skipped)
        elif each.is_file(follow_symlinks=False):
            yield Entry(FILE, path)
        else:
            skipped.append(f"{path} (not a file)")


def _ignored(path: str, rules: _Rules) -> bool:
    # What the command line excludes comes first; of the files, the one closest to the path decides, as in git.
    first, *rest = rules
    for base, spec in (first, *reversed(rest)):
        included = spec.check_file(path[len(base) + 1 :] if base else path).include
        if included is not None:
            return included
    return False


def _stamp(file: int) -> Stamp:
    found = os.fstat(file)
    return found.st_mtime_ns, found.st_size, found.st_ino
