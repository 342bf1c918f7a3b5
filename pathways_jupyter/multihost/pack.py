"""What is sent: the files of a directory with the hash of each, without what .gitignore and ``--exclude`` name."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gzip
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

from pathways_jupyter.base.packages import require
from pathways_jupyter.multihost.errors import PackError
from pathways_jupyter.multihost.program import frame
from pathways_jupyter.multihost.remote.sync import DIRECTORY, FILE, LINK

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

ALWAYS_EXCLUDED = (".git/", "__pycache__/", ".ipynb_checkpoints/", "/multihost-runs/")
_READ_BYTES = 1024 * 1024
_ATTEMPTS = 3
_THREADS = 4
_LEVEL = 4
"""Half as long again as level 1 here, once; on every host, the 16 % that it saves are received and read faster."""

_new_hash = functools.partial(hashlib.blake2b, digest_size=20)
_Rules = Sequence[tuple[str, "GitIgnoreSpec"]]


@dataclass(frozen=True)
class Entry:
    """One file, link or directory.

    Attributes:
      path: Relative to the packed directory, with ``/``.
      content: Hash of a file, target of a link; empty for a directory.
      size: Bytes of a file.
    """

    path: str
    kind: str
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

    @functools.cached_property
    def contents(self) -> dict[str, Entry]:
        """A file of each content, by its hash."""
        return {each.content: each for each in self.files}

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(each.size for each in self.files)

    @functools.cached_property
    def manifest(self) -> bytes:
        """The entries as hosts read them; made once for all of them."""
        return frame([[each.path, each.kind, each.mode, each.content, each.size] for each in self.entries])


def pack(root: Path, exclude: Sequence[str] = ()) -> Packed:
    """List and hash the files below `root`; blocks.

    Args:
      exclude: Patterns as in .gitignore; they win over the files' own.

    Raises:
      PackError: There is no such directory, a file cannot be read, or a file changes all the time.
      ConfigError: A package is missing here.
    """
    require("hosts", "Sending a directory", "pathspec")
    import pathspec

    root = root.expanduser().resolve()
    if not root.is_dir():
        raise PackError(f"There is no directory {root}.", hint="Name the directory of your code with --dir.")
    rules = [("", pathspec.GitIgnoreSpec.from_lines([*ALWAYS_EXCLUDED, *exclude]))]
    skipped: list[str] = []
    try:
        found = list(_walk(root, "", rules, skipped))
        with ThreadPoolExecutor(_THREADS) as threads:
            entries = threads.map(lambda each: _hashed(root, each) if each.kind == FILE else each, found)
            return Packed(root, tuple(entries), tuple(skipped))
    except OSError as error:
        raise PackError(
            f"{error.filename} cannot be read: {error.strerror}.",
            hint="Fix its permissions, or leave it out: --exclude.",
        ) from error


class Sending:
    """A directory on its way to the hosts of a run: packed in a thread, from now on, and as archives.

    Most hosts lack the same, so that there are fewer archives than hosts.
    """

    def __init__(self, root: Path, exclude: Sequence[str] = ()) -> None:
        # It begins at once, unlike a task: beside what is imported, and beside connecting.
        self._packing = asyncio.get_running_loop().run_in_executor(None, pack, root, exclude)
        self._made: dict[tuple[str, ...], asyncio.Future[IO[bytes]]] = {}

    async def packed(self) -> Packed:
        """Return what is sent; see :func:`pack`."""
        return await asyncio.shield(self._packing)

    async def archive(self, contents: tuple[str, ...]) -> IO[bytes]:
        """Return a file with `contents` one after another, compressed with gzip.

        Raises:
          PackError: A file has changed since it was packed, or the temporary file cannot be written.
        """
        if contents not in self._made:
            making = asyncio.to_thread(_archive, await self.packed(), contents)
            self._made[contents] = asyncio.ensure_future(making)
        # Other hosts wait for the same file.
        return await asyncio.shield(self._made[contents])

    def __enter__(self) -> Sending:
        return self

    def __exit__(self, *exception: object) -> None:
        # What is still being made is closed once it is; errors are dropped by now.
        self._packing.add_done_callback(lambda done: done.cancelled() or done.exception())
        for each in self._made.values():
            each.add_done_callback(lambda done: done.cancelled() or done.exception() or done.result().close())


def _archive(packed: Packed, contents: tuple[str, ...]) -> IO[bytes]:
    with contextlib.ExitStack() as unless_done:
        path = packed.root
        try:
            file = unless_done.enter_context(tempfile.TemporaryFile(prefix="pathways-"))
            with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=_LEVEL) as archive:
                for content in contents:
                    path = packed.root / packed.contents[content].path
                    digest = _new_hash()
                    with path.open("rb", buffering=0) as source:
                        while data := source.read(_READ_BYTES):
                            digest.update(data)
                            archive.write(data)
                    if digest.hexdigest() != content:
                        raise _changing(path)
            file.flush()
        except OSError as error:
            raise PackError(
                f"{path} cannot be sent: {error.strerror}.",
                hint="Free space for temporary files, or see --exclude.",
            ) from error
        unless_done.pop_all()
    return file


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
                # By way of names outside, such as that of the directory itself, it would lead elsewhere on a host.
                if os.path.isabs(target) or os.path.normpath(os.path.join(folder, target)).startswith(".."):
                    target = os.path.relpath(os.path.join(root, inside), here)
                yield Entry(path, LINK, content=target)
        elif is_folder:
            yield Entry(path, DIRECTORY)
            yield from _walk(root, path, rules, skipped)
        elif each.is_file(follow_symlinks=False):
            yield Entry(path, FILE)
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


def _hashed(root: Path, entry: Entry) -> Entry:
    """Return `entry` with mode, hash and size of its file as it is now."""
    path = root / entry.path
    for _ in range(_ATTEMPTS):
        with path.open("rb", buffering=0) as file:
            before = os.fstat(file.fileno())
            digest = hashlib.file_digest(file, _new_hash)
            after = os.fstat(file.fileno())
            size = file.seek(0, os.SEEK_CUR)
        if (before.st_mtime_ns, size) == (after.st_mtime_ns, after.st_size):
            return replace(entry, mode=stat.S_IMODE(after.st_mode) & 0o777, content=digest.hexdigest(), size=size)
    raise _changing(path)


def _changing(path: Path) -> PackError:
    return PackError(
        f"{path} changed while it was packed.", hint="Stop what writes to it, or leave it out: --exclude NAME."
    )
