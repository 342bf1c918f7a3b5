"""The saves of one user in a bucket: ``BUCKET/saved/USER/NAME/index.json``, and the arrays in a directory beside it.

The index is written last, so a save is whole or not there: what no index names is removed by the next save of that
name. The index has the bucket's own checksum of each file. Who may write to the bucket may change values; nothing that
is read there is run, and no path of it is used.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import re
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any
from urllib.parse import quote

from pathways_jupyter.base import interrupts, tasks
from pathways_jupyter.base.errors import ConfigError, PathwaysError
from pathways_jupyter.base.google import open_bucket
from pathways_jupyter.base.packages import require
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.saved import arrays as stored
from pathways_jupyter.saved.arrays import READ, WRITE, Report
from pathways_jupyter.saved.resize import Resize
from pathways_jupyter.saved.values import UnsavableError, VariableReader, VariableWriter

_FORMAT = 1
_INDEX = "index.json"
_LARGEST_INDEX_BYTES = 64 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_CONTENT = re.compile(r"[0-9a-f]{32}")
_LONGEST_SAVE_SECONDS, _ABANDONED_SECONDS = 12 * 3600.0, 24 * 3600.0
"""A save that takes longer fails; what was written so long ago, and is named by no index, belongs to none that runs."""
_NO_DATA = (ModuleType, FunctionType, BuiltinFunctionType, type)


@dataclass(frozen=True)
class Save:
    """A save as its index shows it, without its arrays.

    Attributes:
      nbytes: Of its files in the bucket.
      saved: When, in seconds since 1970.
      notebook: Path of the notebook that saved it; empty if it was none.
      variables: The names of its variables.
      unkept: Sentences about the variables that were left out; known only to the process that saved it.
    """

    name: str
    nbytes: int
    saved: float
    notebook: str
    variables: tuple[str, ...]
    unkept: tuple[str, ...] = ()


class Saves:
    """The saves of `user` in `bucket`.

    Args:
      bucket: ``gs://BUCKET/PATH``.

    Raises:
      ConfigError: There is no bucket, or a package is missing.
    """

    def __init__(self, bucket: str, user: str) -> None:
        if not bucket.startswith("gs://"):
            raise ConfigError(
                "Saving variables needs a bucket, and this session has none.",
                hint=advice("Connect with {gcs_bucket:gs://...}."),
            )
        _load("gcsfs")
        self._base = f"{bucket.removeprefix('gs://').rstrip('/')}/saved/{quote(user, safe='@')}"

    def save(
        self,
        name: str,
        variables: Mapping[str, Any],
        devices: Sequence[Any],
        *,
        all_of: bool,
        notebook: str,
        report: Report | None = None,
    ) -> Save:
        """Save `variables` as `name`; a previous save of that name is replaced when this one is whole.

        Args:
          all_of: Whether each variable has to be kept; otherwise what cannot be is left out.
          report: Called with the progress, on another thread.

        Raises:
          UnsavableError: A variable cannot be kept, and `all_of` them have to be.
          PathwaysError: The bucket or the hosts failed; a previous save stays as it was.
        """
        content, directory, began = uuid.uuid4().hex, self._directory(name), time.time()
        _load_orbax()
        writer, nodes, unkept = VariableWriter(lambda array: stored.describe(array, devices)), {}, []
        for variable, value in variables.items():
            if not all_of and (variable.startswith("_") or isinstance(value, _NO_DATA)):
                continue
            try:
                nodes[variable] = writer.write(variable, value)
            except UnsavableError as error:
                if all_of:
                    raise
                unkept.append(str(error))
        index = {
            "format": _FORMAT,
            "content": content,
            "saved": began,
            "notebook": notebook,
            "variables": nodes,
            "arrays": writer.described,
        }

        def write() -> bytes:
            stored.write(f"gs://{directory}/{content}", writer.arrays, stored.progress(WRITE, self._base, report))
            index["files"] = _files(bucket, f"{directory}/{content}")
            return json.dumps(index).encode()

        with _explained(f"{name} cannot be saved"):
            bucket = open_bucket()
            data = tasks.abandonable(write, name="pathways-save")
            if time.time() - began > _LONGEST_SAVE_SECONDS:
                # Perhaps the machine was asleep; a sweep may have taken the files for abandoned soon.
                raise PathwaysError(
                    f"{name} cannot be saved: it took longer than 12 hours.",
                    hint="Save it again, on a machine that does not sleep meanwhile.",
                )
            if len(data) > _LARGEST_INDEX_BYTES:
                raise PathwaysError(
                    f"{name} cannot be saved: what is not on TPUs is larger than 48 MB.",
                    hint="Put large arrays on TPUs with jax.device_put, or save fewer variables.",
                )
            bucket.pipe_file(f"{directory}/{_INDEX}", data)
            # Not what is newer than this save: another kernel may be writing it, under the same name.
            contents = self._contents(bucket, directory).items()
            others = [files for (_, each), files in contents if each != content]
            _remove(bucket, [path for files in others for path in _if_before(began, files)])
        return _described(name, index, tuple(unkept))

    def place(self, name: str) -> str:
        """Return the address of a save: ``gs://...``."""
        return f"gs://{self._directory(name)}"

    def _directory(self, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"{name[:80]!r} cannot be the name of a save.",
                hint="Use letters, digits, dots, dashes and underscores.",
            )
        return f"{self._base}/{name}"

    def _index(self, bucket: Any, name: str) -> dict[str, Any]:
        """Read an index.

        Raises:
          FileNotFoundError: There is none.
          PathwaysError: It is damaged, or of another version.
        """
        path = f"{self._directory(name)}/{_INDEX}"
        return _parsed(name, bucket.cat_file(path, start=0, end=_LARGEST_INDEX_BYTES + 1))

    def seconds(self, nbytes: int) -> float | None:
        """Return about how long it takes to save so many bytes; None where that is not known yet."""
        return stored.seconds(WRITE, self._base, nbytes)

    def load(
        self, name: str, devices: Sequence[Any], report: Report | None = None, resize: Resize | None = None
    ) -> dict[str, Any]:
        """Return the variables of `name` with their arrays on `devices`, the session's.

        Args:
          report: Called with the progress, on another thread.
          resize: Put the arrays on this number of slices; there is None for one that does not fit.

        Raises:
          PathwaysError: There is no such save, it is damaged or of another version, or does not fit the devices.
        """
        directory = self._directory(name)
        _load_orbax()

        def read() -> dict[str, Any]:
            bucket = open_bucket()
            index = self._index(bucket, name)
            content = f"{directory}/{index['content']}"
            if _files(bucket, content) != index["files"]:
                raise _damaged(name, "its files are not those that were saved")
            described = dict(enumerate(resize.described(each) if resize else each for each in index["arrays"]))
            arrays: dict[int, Any] = dict.fromkeys(described)
            fitting = {number: each for number, each in described.items() if each is not None}
            arrays |= stored.read(f"gs://{content}", fitting, devices, stored.progress(READ, self._base, report))
            reader = VariableReader(list(arrays.values()))
            return {variable: reader.read(node) for variable, node in index["variables"].items()}

        with _explained(f"{name} cannot be loaded"):
            return tasks.abandonable(read, name="pathways-load")

    def list(self) -> list[Save]:
        """Return all whole saves by name; one that cannot be read has no variables, and says so in `unkept`."""
        with _explained("The saves cannot be listed"):
            bucket = open_bucket()
            try:
                names = [each.rstrip("/").rpartition("/")[2] for each in bucket.ls(self._base, detail=False)]
            except FileNotFoundError:
                return []
            names = sorted(filter(_NAME.fullmatch, names))
            paths = [f"{self._base}/{each}/{_INDEX}" for each in names]
            ends = [_LARGEST_INDEX_BYTES + 1] * len(paths)
            read = bucket.cat_ranges(paths, [0] * len(paths), ends, on_error="return")
        found = []
        for name, data in zip(names, read, strict=True):
            if isinstance(data, FileNotFoundError):
                continue
            try:
                if isinstance(data, Exception):
                    raise PathwaysError(str(data))
                found.append(_described(name, _parsed(name, data)))
            except PathwaysError as error:
                found.append(Save(name, 0, 0.0, "", (), (str(error),)))
        return found

    def require(self, name: str) -> None:
        """Check that something of this name is there, be it damaged or cut short.

        Raises:
          PathwaysError: There is nothing, or the bucket failed.
        """
        directory = self._directory(name)
        with _explained(f"{name} cannot be found"):
            if not open_bucket().find(directory):
                raise FileNotFoundError

    def delete(self, name: str) -> None:
        """Delete a save; also one that is damaged or was cut short.

        Raises:
          PathwaysError: There is none, or the bucket failed.
        """
        directory = self._directory(name)
        with _explained(f"{name} cannot be deleted"):
            bucket = open_bucket()
            if not (files := bucket.find(directory)):
                raise FileNotFoundError
            # First, so that there is never an index without its files.
            index = f"{directory}/{_INDEX}"
            _remove(bucket, [each for each in files if each == index])
            _remove(bucket, [each for each in files if each != index])

    def sweep(self, *, dry_run: bool = False, at: float | None = None) -> tuple[str, ...]:
        """Remove what saves have left that were cut short; return the places of it.

        What was written within a day stays, since it may belong to a save that runs.

        Args:
          dry_run: Only return the places.
          at: The present, in seconds since 1970; by default that of this machine.

        Raises:
          PathwaysError: The bucket failed.
        """
        before = (time.time() if at is None else at) - _ABANDONED_SECONDS
        with _explained("Saves that were cut short cannot be removed"):
            bucket = open_bucket()
            left = self._contents(bucket, self._base)
            # Only now, so that a save that became whole meanwhile is named.
            for name in {name for name, _ in left}:
                with contextlib.suppress(FileNotFoundError):
                    try:
                        del left[name, self._index(bucket, name)["content"]]
                    except PathwaysError:
                        # Damaged, or of another version, which may name any of them.
                        left = {place: files for place, files in left.items() if place[0] != name}
            abandoned = {place: paths for place, files in left.items() if (paths := _if_before(before, files))}
            if not dry_run:
                _remove(bucket, [path for paths in abandoned.values() for path in paths])
        return tuple(f"gs://{self._base}/{name}/{content}" for name, content in abandoned)

    def _contents(self, bucket: Any, directory: str) -> dict[tuple[str, str], _Files]:
        """Return the files of arrays below `directory`, by the name of the save and the directory in it."""
        found: dict[tuple[str, str], _Files] = {}
        for path, about in bucket.find(directory, detail=True).items():
            name, _, rest = path.removeprefix(f"{self._base}/").partition("/")
            content, _, file = rest.partition("/")
            if _NAME.fullmatch(name) and _CONTENT.fullmatch(content) and file:
                found.setdefault((name, content), {})[path] = about["mtime"].timestamp()
        return found


_Files = dict[str, float]
"""Paths of files, and the time of writing of each, in seconds since 1970."""


def _if_before(moment: float, files: _Files) -> list[str]:
    """Return the paths of `files` if all of them were written before `moment`; otherwise none."""
    return list(files) if max(files.values()) < moment else []


def _remove(bucket: Any, paths: Sequence[str]) -> None:
    if paths:
        bucket.rm(list(paths))


def _load(package: str, module: str = "") -> None:
    """Import a package that is optional.

    Raises:
      ConfigError: It is missing.
    """
    require("elastic", "Saving variables", package)
    # An Interrupt in the middle of an import would leave packages that fail until the kernel ends.
    with interrupts.defer_sigint():
        importlib.import_module(module or package)


def _load_orbax() -> None:
    _load("orbax.checkpoint", "orbax.checkpoint._src.serialization.cloud_pathways_helper")


def _files(bucket: Any, directory: str) -> dict[str, list[Any]]:
    """Return the size and the checksum of each file below `directory`, as the bucket has them."""
    found = bucket.find(directory, detail=True)
    return {
        path.removeprefix(f"{directory}/"): [about["size"], about.get("md5Hash") or about.get("crc32c")]
        for path, about in found.items()
    }


def _parsed(name: str, data: bytes) -> dict[str, Any]:
    """Return an index.

    Raises:
      PathwaysError: It is damaged, or of another version.
    """
    try:
        index = json.loads(data) if len(data) <= _LARGEST_INDEX_BYTES else None
        if isinstance(index, dict) and isinstance(index["format"], int) and index["format"] != _FORMAT:
            raise PathwaysError(
                f"{name} was saved in format {index['format']}, and this version reads {_FORMAT}.",
                hint="Load it with the version of pathways_jupyter that saved it, or a later one.",
            )
        if (
            isinstance(index, dict)
            and isinstance(index["arrays"], list)
            and isinstance(index["files"], dict)
            and isinstance(index["variables"], dict)
            and all(each.isidentifier() for each in index["variables"])
            and _CONTENT.fullmatch(index["content"])
        ):
            _described(name, index)
            return index
    except (LookupError, TypeError, ValueError, RecursionError):
        pass
    raise _damaged(name, "its index cannot be read")


def _damaged(name: str, why: str) -> PathwaysError:
    return PathwaysError(f"{name} is damaged: {why}.", hint=advice("{saved:delete {name}} removes it.", name=name))


def _described(name: str, index: Mapping[str, Any], unkept: tuple[str, ...] = ()) -> Save:
    nbytes = sum(int(size) for size, _ in index["files"].values())
    saved, notebook = float(index["saved"]), str(index["notebook"])
    return Save(name, nbytes, saved, notebook, tuple(index["variables"]), unkept)


@contextlib.contextmanager
def _explained(what: str) -> Iterator[None]:
    from gcsfs.retry import HttpError
    from google.auth.exceptions import GoogleAuthError

    # To list and delete saves needs no JAX.
    jax = sys.modules.get("jax")
    of_jax = (jax.errors.JaxRuntimeError,) if jax is not None else ()
    try:
        yield
    except FileNotFoundError:
        raise PathwaysError(f"{what}: there is none of that name.", hint=advice("{saved} lists them.")) from None
    except (OSError, HttpError, GoogleAuthError, *of_jax) as error:
        said = str(error).partition("\n")[0].rstrip(".")
        raise PathwaysError(f"{what}: {said}.", hint="The hosts' account and yours need the bucket.") from error
    except (LookupError, TypeError, ValueError, RecursionError, AttributeError) as error:
        raise PathwaysError(f"{what}: {str(error).rstrip('.')}.") from error
