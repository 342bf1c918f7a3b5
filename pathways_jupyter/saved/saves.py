"""The saves of one user in a bucket: ``BUCKET/saved/USER/NAME/index.json``, and the arrays in a directory beside it.

The index is written last, and only over the one that was there when the save began: of two saves of one name at the
same time one is whole, and the other one fails. What the replaced index named is removed then, and nothing else, so no
clock decides what belongs to whom. The index has the bucket's own checksum of each file. Others who may write to
the bucket may change values; nothing that is read there is run, and no path of it is used.
"""

from __future__ import annotations

import importlib
import threading
import time
import uuid
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from pathways_jupyter.base import interrupts, tasks
from pathways_jupyter.base.errors import ConfigError, PathwaysError
from pathways_jupyter.base.google import open_bucket
from pathways_jupyter.base.packages import require
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.saved import arrays as array_files
from pathways_jupyter.saved import cut_short
from pathways_jupyter.saved.arrays import READ, WAIT, WRITE, Report
from pathways_jupyter.saved.bucket_errors import errors_of_jax, explained
from pathways_jupyter.saved.code import is_code
from pathways_jupyter.saved.index import (
    LARGEST_BYTES,
    MOST_ARRAYS,
    UNREADABLE,
    Index,
    damaged,
    is_name,
)
from pathways_jupyter.saved.resize import Resize
from pathways_jupyter.saved.stored_save import INDEX, NAME, StoredSave, remove
from pathways_jupyter.saved.values import UnsavableError, VariableReader, VariableWriter

_MOST_READS = 3
"""A save that is replaced while it is read is read again."""
_LONGEST_SAVE_SECONDS = 12 * 3600.0
"""A save that takes longer fails: a sweep may have taken its arrays for abandoned soon."""


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


def latest(saves: Sequence[Save], notebook: str) -> Save | None:
    """Return the last of `saves` that the notebook with this path has; None if there is none, or no path."""
    own = [each for each in saves if notebook and each.saved and each.notebook == notebook]
    return max(own, key=lambda each: each.saved, default=None)


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
                "Saved variables are in a bucket, and this session has none.",
                hint=advice("Connect with {gcs_bucket:gs://BUCKET}."),
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
        content, began, interrupted = uuid.uuid4().hex, time.time(), threading.Event()
        # The name is checked before anything is done.
        self._directory(name)
        _load_orbax()
        writer, nodes, unkept = _described_variables(name, variables, devices, all_of=all_of)
        if report is not None:
            report(WAIT, "")
        if lost := array_files.lost(writer.arrays):
            writer, nodes, unkept = _described_variables(name, variables, devices, all_of=all_of, lost=lost)

        def write() -> tuple[str, Index | None, Index]:
            try:
                generation, replaced = save.present()
                place, progress = f"gs://{save.place(content)}", array_files.progress(WRITE, self._base, report)
                array_files.write(place, writer.arrays, progress)
                files = save.files(content)
                if not {path.partition("/")[0] for path in files} >= {
                    str(number) for number, array in enumerate(writer.arrays) if array.size
                }:
                    raise save.interfered()
                return generation, replaced, Index(content, began, notebook, nodes, writer.described, files)
            finally:
                # An error keeps its frames, and they this.
                writer.forget()
                if interrupted.is_set():
                    save.discard(content)

        with explained(f"{name} cannot be saved"):
            # To find the credentials may take seconds.
            save = self._stored(tasks.abandonable(open_bucket, name="pathways-save"), name)
            try:
                generation, replaced, index = tasks.abandonable(write, name="pathways-save")
                if time.time() - began > _LONGEST_SAVE_SECONDS:
                    # Perhaps the machine was asleep; a sweep may have taken the files for abandoned soon.
                    raise PathwaysError(
                        f"{name} cannot be saved: it took longer than 12 hours.",
                        hint="Save it again, on a machine that does not sleep meanwhile.",
                    )
                save.publish(index, generation)
            except KeyboardInterrupt:
                # The hosts go on writing; the thread that waits for them removes it then.
                interrupted.set()
                raise
            except Exception as error:
                # Not if the bucket failed, for which it would be waited once more; a sweep removes them then.
                if isinstance(error, (PathwaysError, *errors_of_jax())):
                    save.discard(content)
                raise
            if replaced is not None:
                old = replaced.content
                # After an Interrupt it goes on: the save is whole.
                tasks.abandonable(lambda: save.remove(old), name="pathways-save")
        return _described(name, index, tuple(unkept))

    def address(self, name: str) -> str:
        """Return the address of a save: ``gs://...``."""
        return f"gs://{self._directory(name)}"

    def _directory(self, name: str) -> str:
        if not NAME.fullmatch(name):
            raise ConfigError(
                f"{name[:80]!r} cannot be the name of a save.",
                hint="Use letters, digits, dots, dashes and underscores.",
            )
        return f"{self._base}/{name}"

    def _stored(self, bucket: Any, name: str) -> StoredSave:
        return StoredSave(bucket, self._directory(name), name)

    def seconds(self, nbytes: int) -> float | None:
        """Return about how long it takes to save so many bytes; None where that is not known yet."""
        return array_files.seconds(WRITE, self._base, nbytes)

    def load(
        self,
        name: str,
        devices: Sequence[Any],
        report: Report | None = None,
        resize: Resize | None = None,
        *,
        classes: MutableMapping[int, str] | None = None,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> dict[str, Any]:
        """Return the variables of `name` with their arrays on `devices`, the session's.

        Args:
          report: Called with the progress, on another thread.
          resize: Put the arrays on this number of slices; there is None for one that does not fit.
          classes: Gets the classes that other pytrees had, by the id of the dictionary with their leaves.
          meanwhile: Called while the hosts read.

        Raises:
          PathwaysError: There is no such save, it is damaged or of another version, or does not fit the devices.
        """
        _load_orbax()

        def read() -> tuple[dict[str, Any], Mapping[int, str]]:
            save = self._stored(open_bucket(), name)
            for attempt in range(_MOST_READS):
                generation, data = save.index()
                try:
                    return self._variables(save, name, Index.parse(name, data), devices, report, resize)
                except Exception:
                    if attempt == _MOST_READS - 1 or save.present()[0] == generation:
                        raise
            raise AssertionError

        with explained(f"{name} cannot be loaded"):
            variables, of_leaves = tasks.abandonable(read, name="pathways-load", meanwhile=meanwhile)
        if classes is not None:
            classes.update(of_leaves)
        return variables

    def _variables(
        self,
        save: StoredSave,
        name: str,
        index: Index,
        devices: Sequence[Any],
        report: Report | None,
        resize: Resize | None,
    ) -> tuple[dict[str, Any], Mapping[int, str]]:
        if save.files(index.content) != index.files:
            raise damaged(name, "its files are not those that were saved")
        described = dict(enumerate(resize.described(each) if resize else each for each in index.arrays))
        arrays: dict[int, Any] = dict.fromkeys(described)
        fitting = {number: each for number, each in described.items() if each is not None}
        progress = array_files.progress(READ, self._base, report)
        arrays |= array_files.read(f"gs://{save.place(index.content)}", fitting, devices, progress)
        reader, variables = VariableReader(list(arrays.values())), {}
        for variable, node in index.variables.items():
            try:
                variables[variable] = reader.read(node)
            except UNREADABLE as error:
                raise damaged(name, f"{variable} cannot be read") from error
        return variables, reader.classes

    def list(self) -> list[Save]:
        """Return all whole saves by name; one that cannot be read has no variables, and says so in `unkept`."""

        def read() -> dict[str, Any]:
            bucket = open_bucket()
            try:
                names = [each.rstrip("/").rpartition("/")[2] for each in bucket.ls(self._base, detail=False)]
            except FileNotFoundError:
                return {}
            names = sorted(filter(NAME.fullmatch, names))
            paths = [f"{self._base}/{each}/{INDEX}" for each in names]
            ends = [LARGEST_BYTES + 1] * len(paths)
            return dict(zip(names, bucket.cat_ranges(paths, [0] * len(paths), ends, on_error="return"), strict=True))

        with explained("The saves cannot be listed"):
            indexes = tasks.abandonable(read, name="pathways-saved")
        saves = []
        for name, data in indexes.items():
            if isinstance(data, FileNotFoundError):
                continue
            try:
                if isinstance(data, Exception):
                    raise PathwaysError(str(data))
                saves.append(_described(name, Index.parse(name, data)))
            except PathwaysError as error:
                saves.append(Save(name, 0, 0.0, "", (), (str(error),)))
        return saves

    def require(self, name: str) -> None:
        """Check that something of this name is there, be it damaged or cut short.

        Raises:
          PathwaysError: There is nothing, or the bucket failed.
        """
        directory = self._directory(name)
        with explained(f"{name} cannot be found"):
            if not tasks.abandonable(lambda: open_bucket().find(directory), name="pathways-saved"):
                raise FileNotFoundError

    def delete(self, name: str) -> None:
        """Delete a save; also one that is damaged or was cut short.

        Raises:
          PathwaysError: There is none, or the bucket failed.
        """
        directory = self._directory(name)

        def delete() -> None:
            bucket = open_bucket()
            if not (files := bucket.find(directory)):
                raise FileNotFoundError
            # First, so that there is never an index without its files.
            index = f"{directory}/{INDEX}"
            remove(bucket, [each for each in files if each == index])
            remove(bucket, [each for each in files if each != index])

        with explained(f"{name} cannot be deleted"):
            # After an Interrupt it goes on: what was begun is removed.
            tasks.abandonable(delete, name="pathways-saved")

    def sweep(self, *, dry_run: bool = False, at: float | None = None) -> tuple[str, ...]:
        """Remove what saves have left that were cut short; return the places of it.

        What was written within a day stays, since it may belong to a save that runs.

        Args:
          dry_run: Only return the places.
          at: The present, in seconds since 1970; by default by the bucket's clock, as the times of its files.

        Raises:
          PathwaysError: The bucket failed.
        """

        def find_and_remove() -> dict[tuple[str, str], list[str]]:
            bucket = open_bucket()
            found = cut_short.find(bucket, self._base, at)
            if not dry_run:
                remove(bucket, [path for paths in found.values() for path in paths])
            return found

        with explained("Saves that were cut short cannot be removed"):
            abandoned = tasks.abandonable(find_and_remove, name="pathways-saved")
        return tuple(f"gs://{self._base}/{name}/{content}" for name, content in abandoned)


def _described_variables(
    name: str,
    variables: Mapping[str, Any],
    devices: Sequence[Any],
    *,
    all_of: bool,
    lost: Mapping[int, str] = MappingProxyType({}),
) -> tuple[VariableWriter, dict[str, Any], list[str]]:
    """Return the variables as the index will have them, with their arrays in the writer, and why others are left out.

    Raises:
      UnsavableError: As :meth:`Saves.save`.
    """
    writer = VariableWriter(lambda array: array_files.describe(array, devices, lost))
    nodes, unkept = dict[str, Any](), []
    for variable, value in variables.items():
        if not all_of and (variable.startswith("_") or is_code(value)):
            continue
        try:
            if not is_name(variable):
                raise UnsavableError(f"{variable[:80]!r} is no name of a variable.")
            nodes[variable] = writer.write(variable, value)
        except UnsavableError as error:
            if all_of:
                raise
            unkept.append(str(error))
    if len(writer.arrays) > MOST_ARRAYS:
        raise UnsavableError(f"{name} cannot be saved: it has more than {MOST_ARRAYS:,} arrays.")
    return writer, nodes, unkept


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


def _described(name: str, index: Index, unkept: tuple[str, ...] = ()) -> Save:
    return Save(name, index.nbytes, index.saved, index.notebook, tuple(index.variables), unkept)
