"""Content on its way to a run directory: files named after the hash of what is in them.

Each connection has a folder of its own, from which :mod:`tree` moves the files to where they belong, so that nothing is
written twice. What a connection that was cut has received in full is taken over by the next one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import zlib

try:
    # As in hashlib, which loads OpenSSL as well.
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

TYPE_CHECKING = False
if TYPE_CHECKING:
    import hashlib
    from collections.abc import Iterable

HASH_BYTES = 20
PIECE_BYTES = 256 * 1024
"""The most content in one frame that is compressed."""
_LOCK = "lock"
_COPY_BYTES = 1024 * 1024


def hasher(data: bytes = b"", size: int = HASH_BYTES) -> hashlib.blake2b:
    """Return a new hash. BLAKE2 because it is in every Python's standard library, and faster than SHA-2."""
    return blake2b(data, digest_size=size)


class Store:
    """The content that one connection receives.

    Args:
      root: Shared by all connections of one user to one host, and to the hosts with the same home directory.
    """

    def __init__(self, root: str) -> None:
        self._open: int | None = None
        self._hash = hasher()
        os.makedirs(root, mode=0o700, exist_ok=True)
        # The process id alone is not unique where hosts share a home directory.
        self._folder = f"{root}/{os.uname().nodename}.{os.getpid()}"
        self._lock = self._occupy()
        self._have = {each for each in os.listdir(self._folder) if _is_hash(each)}
        for other in os.scandir(root):
            if other.path != self._folder:
                self._take_over(other.path)

    def lacking(self, digests: Iterable[str]) -> list[str]:
        """Return those of `digests` that are not here, in the same order and each once."""
        return [digest for digest in dict.fromkeys(digests) if digest not in self._have]

    def add(self, digest: str, codec: str, data: memoryview, *, last: bool, trusted: bool = False) -> bool:
        """Append a piece of the content named `digest`; return False if the whole does not have that hash.

        Args:
          trusted: Do not compute the hash: the content comes from the client, which has, over a connection that
            protects it.

        Raises:
          OSError: It cannot be written, for instance because the disk is full; the part is removed.
          ValueError: `digest` is not a hash.
        """
        if not _is_hash(digest):
            raise ValueError(f"{digest!r} is not a hash")
        if codec == "deflate":
            # With room for all of it, which otherwise grows in steps, and is copied each time.
            data = memoryview(zlib.decompress(data, -zlib.MAX_WBITS, PIECE_BYTES))
        try:
            if self._open is None:
                self._partial = f"{self._folder}/{digest}.partial"
                self._open = os.open(self._partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
                self._hash = hasher()
            left = data
            while left:
                left = left[os.write(self._open, left) :]
            if not trusted:
                self._hash.update(data)
            if last:
                os.close(self._open)
        except OSError:
            self.discard()
            raise
        if not last:
            return True
        self._open = None
        if not trusted and self._hash.hexdigest() != digest:
            os.unlink(self._partial)
            return False
        os.rename(self._partial, f"{self._folder}/{digest}")
        self._have.add(digest)
        return True

    def give(self, digest: str, path: str) -> bool:
        """Move the content with this hash to `path`; return False if it is not here (any more).

        Raises:
          OSError: `path` cannot be written.
        """
        if digest not in self._have:
            return False
        try:
            os.rename(f"{self._folder}/{digest}", path)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            copy(f"{self._folder}/{digest}", path)
            os.unlink(f"{self._folder}/{digest}")
        self._have.discard(digest)
        return True

    def discard(self) -> None:
        """Remove the content that has arrived in part."""
        if self._open is not None:
            with contextlib.suppress(OSError):
                os.close(self._open)
            with contextlib.suppress(OSError):
                os.unlink(self._partial)
            self._open = None

    def close(self, *, keep: bool) -> None:
        """End the use of this folder; with `keep` what has arrived in full stays for another connection."""
        self.discard()
        if not keep or not self._have:
            _remove(self._folder)
        os.close(self._lock)

    def _occupy(self) -> int:
        while True:
            os.makedirs(self._folder, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                lock = os.open(f"{self._folder}/{_LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                fcntl.flock(lock, fcntl.LOCK_EX)
                # Another connection may have removed the folder before it was locked.
                if os.fstat(lock).st_nlink:
                    return lock
                os.close(lock)

    def _take_over(self, other: str) -> None:
        """Move what another connection has left here. One that goes on holds its lock, and is left alone."""
        try:
            lock = os.open(f"{other}/{_LOCK}", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for each in os.listdir(other):
                if _is_hash(each):
                    os.replace(f"{other}/{each}", f"{self._folder}/{each}")
                    self._have.add(each)
            _remove(other)
        except OSError:
            pass
        finally:
            os.close(lock)


def copy(source: str, path: str) -> None:
    """Copy the content of a file. Not with the module shutil, which takes longer to import than most files to copy."""
    with open(source, "rb", buffering=0) as here, open(path, "wb", buffering=0) as there:
        while data := here.read(_COPY_BYTES):
            view = memoryview(data)
            while view:
                view = view[there.write(view) :]


def _remove(folder: str) -> None:
    """Remove a folder of content, which has no folders in it."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            os.unlink(f"{folder}/{name}")
        os.rmdir(folder)


def _is_hash(name: str) -> bool:
    return len(name) == 2 * HASH_BYTES and name.isalnum()
