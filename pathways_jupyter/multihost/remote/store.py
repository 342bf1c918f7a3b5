"""The content that a host has already: files named after the hash of what is in them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import IO

HASH_BYTES = 20
_UNUSED_SECONDS = 14 * 24 * 3600.0
"""Content that no run has used for this long is removed."""


def hasher() -> hashlib.blake2b:
    """Return a new hash of content. BLAKE2 because it is in every Python's standard library, and faster than SHA-2."""
    return hashlib.blake2b(digest_size=HASH_BYTES)


class Store:
    """A directory of content, shared by all runs of one user on one host."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._open: IO[bytes] | None = None
        self._hash = hasher()
        self._known: set[str] = set()
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._forget_partial()

    def path(self, digest: str) -> Path:
        """Return where the content with this hash is, or would be.

        Raises:
          ValueError: `digest` is not a hash.
        """
        if len(digest) != 2 * HASH_BYTES or not digest.isalnum():
            raise ValueError(f"{digest!r} is not a hash")
        return self._root / digest[:2] / digest

    def lacking(self, digests: Iterable[str]) -> list[str]:
        """Return those of `digests` that are not here, in the same order and each once."""
        absent, now = [], time.time()
        for digest in dict.fromkeys(digests):
            try:
                os.utime(self.path(digest), (now, now))
            except OSError:
                absent.append(digest)
        return absent

    def add(self, digest: str, codec: str, data: bytes, *, last: bool) -> bool:
        """Append a piece of the content named `digest`; return False if the whole does not have that hash.

        Raises:
          OSError: It cannot be written, for instance because the disk is full; the part is removed.
        """
        if codec == "zlib":
            data = zlib.decompress(data)
        try:
            if self._open is None:
                # The process id keeps two clients that send the same content apart.
                self._partial = self._root / f"{digest}.{os.getpid()}.partial"
                self._open, self._hash = self._partial.open("wb"), hasher()
            self._open.write(data)
            self._hash.update(data)
            if last:
                self._open.close()
        except OSError:
            self.discard()
            raise
        if not last:
            return True
        self._open = None
        if self._hash.hexdigest() != digest:
            self._partial.unlink()
            return False
        target = self.path(digest)
        if digest[:2] not in self._known:
            target.parent.mkdir(exist_ok=True)
            self._known.add(digest[:2])
        self._partial.replace(target)
        return True

    def discard(self) -> None:
        """Remove the content that has arrived in part."""
        if self._open is not None:
            with contextlib.suppress(OSError):
                self._open.close()
            with contextlib.suppress(OSError):
                self._partial.unlink()
            self._open = None

    def forget_unused(self) -> None:
        """Remove content that no run has used for a long time."""
        before = time.time() - _UNUSED_SECONDS
        for folder in self._root.iterdir():
            if not folder.is_dir():
                continue
            for entry in os.scandir(folder):
                with contextlib.suppress(OSError):
                    if entry.stat().st_mtime < before:
                        os.unlink(entry.path)

    def _forget_partial(self) -> None:
        """Remove what a connection that was cut left behind."""
        for path in self._root.glob("*.partial"):
            pid = path.name.split(".")[1]
            if not os.path.exists(f"/proc/{pid}"):
                with contextlib.suppress(OSError):
                    path.unlink()
