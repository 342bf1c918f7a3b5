"""Files that cells have written, brought from the pod's copy of a notebook's folder to the folder itself.

Both ends of the exchange are here. The kernel lists its files with their hashes, this machine's end asks for those that
it does not have, and moves them into the folder when all have arrived. It says how far it is: what the pod's end has
written may still wait in a buffer on the way.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import hashlib
import json
import os
import shlex
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pathways_jupyter.base.errors import ClusterError, ConfigError

SOCKET, FOLDER = "fetch", "folder"
"""Names beside a kernel's connection file in a pod: the way to its machine, and a link to the copy of the folder."""
SCRATCH = ".pathways-fetch-"
"""Beginning of the name of the directory in which files arrive."""

_PIECE_BYTES = 256 * 1024
_WINDOW_BYTES = 4 * 1024 * 1024
"""So much is under way at most: an Interrupt takes effect soon, and the line is full at 30 MB/s and 130 ms."""


@dataclass(frozen=True)
class FetchedFile:
    """One file.

    Attributes:
      path: Relative to the folder, with ``/``.
      content: Hash of its bytes.
    """

    path: str
    size: int
    mode: int
    content: str


@dataclass(frozen=True)
class Fetched:
    """Result of a fetch.

    Attributes:
      folder: The notebook's folder, on its machine.
      written: Paths in it that are new or have changed.
      same: Paths that were the same there already.
      size: Bytes that were sent.
    """

    folder: str
    written: tuple[str, ...]
    same: tuple[str, ...]
    size: int


def choose(folder: Path, names: Sequence[str]) -> list[FetchedFile]:
    """Return the files of `folder` with these names; a directory stands for all files below it.

    Notebooks and hidden files are left out of directories and patterns.

    Args:
      names: Paths, or patterns as of a shell, relative to the working directory.

    Raises:
      ConfigError: A name means no file of the folder, or a notebook or a hidden file.
    """
    try:
        here = Path.cwd()
    except FileNotFoundError as error:
        hint = f"Go to the copy of the notebook's folder: %cd {folder}"
        raise ConfigError("The working directory of this kernel is gone.", hint=hint) from error
    chosen: dict[str, Path] = {}
    for name in names:
        # A file may have a name like a pattern.
        is_pattern = glob.has_magic(name) and not os.path.lexists(name)
        there = [
            path
            for each in (sorted(glob.glob(name, recursive=True)) if is_pattern else [name])
            if (path := Path(each)).exists()
        ]
        if not there:
            raise ConfigError(f"There is no file {name} in {here}, where this kernel runs.", hint="Check its name.")
        # Through links, as one would read it.
        for path in (each.resolve() for each in there):
            if not path.is_relative_to(folder):
                hint = f"Copy it there: !cp -rL {shlex.quote(name)} {shlex.quote(str(folder))}/"
                raise ConfigError(f"{path} is not in {folder}, the copy of the notebook's folder.", hint=hint)
            for each in sorted(path.rglob("*")) if path.is_dir() else [path]:
                short = each.relative_to(folder).as_posix()
                why = _refusal(short)
                if why and each == path and not is_pattern:
                    raise ConfigError(f"{name} {why}.", hint="Copy it to another name in the folder, and fetch that.")
                if not why and each.is_file():
                    chosen[short] = each
    if not chosen:
        raise ConfigError("There is nothing to fetch: no file, or only hidden ones and notebooks.")
    try:
        return [FetchedFile(short, *_about(path)) for short, path in chosen.items()]
    except OSError as error:
        raise _unreadable(error) from error


def send(
    connection: socket.socket, folder: Path, files: Sequence[FetchedFile], report: Callable[[int, int], None]
) -> Fetched:
    """Send those of `files` that the other end does not have; return when they are in place there.

    Args:
      report: Called with the bytes that have arrived, and all.

    Raises:
      ClusterError: The connection was lost, or a file could not be written there.
      ConfigError: A file was changed meanwhile, or is gone.
    """
    with connection.makefile("rb") as lines:

        def answer() -> dict[str, Any]:
            found: dict[str, Any] | None = None
            with contextlib.suppress(ConnectionError, ValueError):
                found = json.loads(lines.readline())
            if found is None:
                raise ClusterError("Nothing was fetched: the connection was lost.", hint="Run it again.")
            if "error" in found:
                raise ClusterError(f"Nothing was fetched: {found['error']}.")
            return found

        def put(data: bytes) -> None:
            # Why it cannot be sent is in the next answer.
            with contextlib.suppress(ConnectionError):
                connection.sendall(data)

        put(json.dumps([list(vars(each).values()) for each in files]).encode() + b"\n")
        began = answer()
        wanted = [files[number] for number in began["wanted"]]
        size, sent, arrived = sum(each.size for each in wanted), 0, 0
        for each in wanted:
            for piece in _pieces(folder / each.path, each.size):
                put(piece)
                sent += len(piece)
                while sent - arrived > _WINDOW_BYTES:
                    arrived = answer()["arrived"]
                    report(arrived, size)
        while "arrived" in (last := answer()):
            report(last["arrived"], size)
    written = {each.path for each in wanted}
    same = tuple(each.path for each in files if each.path not in written)
    return Fetched(began["folder"], tuple(sorted(written)), same, size)


def receive(connection: socket.socket, root: Path | None, move: Callable[[str], None]) -> None:
    """Take what the other end sends into `root`, and answer it; of a fetch that fails nothing stays.

    Args:
      root: The folder, resolved; None if there is none, because nothing was sent of it either.
      move: Called instead with what a kernel sends that moves, see :mod:`.moved`.
    """
    with connection, connection.makefile("rb") as stream, contextlib.suppress(ConnectionError):

        def answer(**words: object) -> None:
            connection.sendall(json.dumps(words).encode() + b"\n")

        try:
            listed = json.loads(stream.readline() or b"[]")
            if isinstance(listed, dict):
                move(listed["moved"])
                answer()
                return
            if root is None:
                raise ValueError("the notebook's folder is your home directory, or above it: the pod has no copy")
            files = [FetchedFile(*each) for each in listed]
            wanted = [number for number, each in enumerate(files) if not _has(_target(root, each.path), each)]
            answer(wanted=wanted, folder=str(root))
            with _scratch(root) as scratch:
                arrived = 0
                for number in wanted:
                    for length in _arrive(stream, f"{scratch}/{number}", files[number]):
                        arrived += length
                        answer(arrived=arrived)
                targets = {number: _target(root, files[number].path) for number in wanted}
                for target in targets.values():
                    target.parent.mkdir(parents=True, exist_ok=True)
                for number, target in targets.items():
                    os.replace(f"{scratch}/{number}", target)
            answer()
        except (OSError, ValueError, TypeError, KeyError) as error:
            why = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
            answer(error=why)
            # To its end: the other end reads an error when it waits for an answer.
            while stream.read(_PIECE_BYTES):
                pass


@contextlib.contextmanager
def _scratch(root: Path) -> Iterator[str]:
    """Make a directory in `root` for what arrives; remove those of processes that were killed meanwhile."""
    with contextlib.ExitStack() as held:
        # One at a time: between its making and its lock a directory looks like one that was left.
        with _locked(root):
            for left in root.glob(f"{SCRATCH}*"):
                with contextlib.suppress(OSError), _locked(left, free=True):
                    shutil.rmtree(left, ignore_errors=True)
            scratch = held.enter_context(tempfile.TemporaryDirectory(prefix=SCRATCH, dir=root))
            held.enter_context(_locked(Path(scratch)))
        yield scratch


@contextlib.contextmanager
def _locked(directory: Path, *, free: bool = False) -> Iterator[None]:
    """Hold a lock on a directory, which ends with this process; without one where the file system has none, as NFS.

    Raises:
      OSError: It has to be `free`, and perhaps is not.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.nullcontext() if free else contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | (fcntl.LOCK_NB if free else 0))
        yield
    finally:
        os.close(descriptor)


def _refusal(path: str) -> str:
    """Return why a file is not brought, as the end of a sentence; empty if it is."""
    parts = path.split("/")
    if any(part.startswith(".") for part in parts):
        return "is hidden: what programs read by themselves is not written from a pod"
    if "__pycache__" in parts:
        return "is a cache"
    return "is a notebook, which this machine has" if path.endswith(".ipynb") else ""


def _target(root: Path, path: str) -> Path:
    """Return where a file is put.

    Raises:
      ValueError: That is not in the folder, or no place for a file.
    """
    target = root / path
    if _refusal(path) or "" in path.split("/"):
        raise ValueError(f"{path} is not written from a pod")
    if not target.parent.resolve().is_relative_to(root):
        raise ValueError(f"{path} would be written outside of {root}, by a link that is here")
    if target.is_dir():
        raise ValueError(f"{path} is a directory here")
    for folder in target.relative_to(root).parents:
        if os.path.lexists(root / folder) and not (root / folder).is_dir():
            raise ValueError(f"{folder} is a file here")
    return target


def _about(path: Path) -> tuple[int, int, str]:
    with path.open("rb") as file:
        # From one descriptor, so that they belong together.
        content, about = hashlib.file_digest(file, hashlib.blake2b).hexdigest(), os.fstat(file.fileno())
    return about.st_size, 0o755 if about.st_mode & 0o100 else 0o644, content


def _has(target: Path, file: FetchedFile) -> bool:
    try:
        return not target.is_symlink() and target.stat().st_size == file.size and _about(target)[2] == file.content
    except OSError:
        return False


def _unreadable(error: OSError) -> ConfigError:
    return ConfigError(f"{error.filename} cannot be read: {error.strerror}.", hint="Look for it, and fetch again.")


def _pieces(path: Path, size: int) -> Iterator[bytes]:
    """Yield a file's first `size` bytes.

    Raises:
      ConfigError: It has fewer by now, or cannot be read any more.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise _unreadable(error) from error
    with file:
        while size:
            piece = file.read(min(size, _PIECE_BYTES))
            if not piece:
                raise ConfigError(f"{path} became shorter meanwhile.", hint="Fetch it again when no one writes it.")
            size -= len(piece)
            yield piece


def _arrive(stream: IO[bytes], path: str, file: FetchedFile) -> Iterator[int]:
    """Write the next file of `stream`; yield the length of each piece.

    Raises:
      ValueError: It is not the one that was listed.
    """
    content, left = hashlib.blake2b(), file.size
    with open(path, "wb", buffering=0, opener=lambda name, flags: os.open(name, flags, file.mode)) as output:
        while left:
            piece = stream.read(min(left, _PIECE_BYTES))
            if not piece:
                raise ValueError("the connection was lost")
            left -= len(piece)
            content.update(piece)
            unwritten = memoryview(piece)
            while unwritten:
                unwritten = unwritten[output.write(unwritten) :]
            yield len(piece)
    if content.hexdigest() != file.content:
        raise ValueError(f"{file.path} was changed meanwhile")
