"""Files for the hosts: those of a directory that may leave this machine, with the hash of each."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gzip
import hashlib
import os
import stat
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pathways_jupyter.base import outgoing
from pathways_jupyter.base.outgoing import LeftOut
from pathways_jupyter.multihost.errors import PackError
from pathways_jupyter.multihost.host_program import frame
from pathways_jupyter.multihost.remote.sync import DIRECTORY, FILE, LINK

_READ_BYTES = 1024 * 1024
_ATTEMPTS = 3
_THREADS = 4
_LEVEL = 4
"""Half as long again as level 1 here, once; on every host, the 16 % that it saves are received and read faster."""

_new_hash = functools.partial(hashlib.blake2b, digest_size=20)


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
      left_out: What stays here although nothing that the user wrote says so.
    """

    root: Path
    entries: tuple[Entry, ...]
    left_out: tuple[LeftOut, ...] = ()

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

    @property
    def reasons(self) -> dict[str, list[str]]:
        """The paths that stay here, by the reason."""
        by_reason: dict[str, list[str]] = {}
        for each in sorted(self.left_out, key=lambda left: left.path):
            by_reason.setdefault(each.reason, []).append(each.path)
        return by_reason

    @functools.cached_property
    def manifest(self) -> bytes:
        """The entries as hosts read them; made once for all of them."""
        return frame([[each.path, each.kind, each.mode, each.content, each.size] for each in self.entries])


def pack(root: Path, exclude: Sequence[str] = (), own: Sequence[Path] = ()) -> Packed:
    """List and hash the files below `root` that may leave this machine; blocks.

    Args:
      exclude: Patterns as in .gitignore; they win over the files' own.
      own: What this command writes.

    Raises:
      PackError: There is no such directory, a file cannot be read, or a file changes all the time.
      ConfigError: A package is missing here.
    """
    root = root.expanduser().resolve()
    if not root.is_dir():
        raise PackError(f"There is no directory {root}.", hint="Name the directory of your code with --dir.")
    left_out: list[LeftOut] = []
    try:
        files = list(outgoing.choose(root, exclude, own, left_out))
        with ThreadPoolExecutor(_THREADS) as threads:
            entries = list(threads.map(lambda each: _entry(root, each), files))
    except OSError as error:
        raise PackError(
            f"{error.filename} cannot be read: {error.strerror}.",
            hint="Fix its permissions, or leave it out: --exclude.",
        ) from error
    left_out += [LeftOut(each.path, outgoing.SECRET) for each, made in zip(files, entries, strict=True) if made is None]
    return Packed(root, tuple(each for each in entries if each is not None), tuple(left_out))


class Sending:
    """A directory on its way to the hosts of a run: packed in a thread, from now on, and as archives.

    Most hosts lack the same, so that there are fewer archives than hosts.
    """

    def __init__(self, root: Path, exclude: Sequence[str] = (), own: Sequence[Path] = ()) -> None:
        # It begins at once, unlike a task: beside what is imported, and beside connecting.
        self._packing = asyncio.get_running_loop().run_in_executor(None, pack, root, exclude, own)
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


def _entry(root: Path, chosen: outgoing.Found) -> Entry | None:
    """Return what is sent of one file, link or directory, as it is now; None for a private key."""
    if chosen.folder:
        return Entry(chosen.path, DIRECTORY)
    if chosen.link:
        return Entry(chosen.path, LINK, content=chosen.link)
    path = root / chosen.path
    for _ in range(_ATTEMPTS):
        with path.open("rb", buffering=0) as file:
            before = os.fstat(file.fileno())
            if not chosen.named and outgoing.is_key(file.read(outgoing.KEY_BYTES)):
                return None
            file.seek(0)
            digest = hashlib.file_digest(file, _new_hash)
            after = os.fstat(file.fileno())
            size = file.seek(0, os.SEEK_CUR)
        if (before.st_mtime_ns, size) == (after.st_mtime_ns, after.st_size):
            return Entry(chosen.path, FILE, stat.S_IMODE(after.st_mode) & 0o777, digest.hexdigest(), size)
    raise _changing(path)


def _changing(path: Path) -> PackError:
    return PackError(
        f"{path} changed while it was packed.", hint="Stop what writes to it, or leave it out: --exclude NAME."
    )
