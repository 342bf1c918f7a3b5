"""All arrays of a process on TPUs, saved while their slices are free, and put back where they were."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from pathways_jupyter.base.errors import PathwaysError, SessionError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.text import array_type, count, each_of, size, some
from pathways_jupyter.saved import arrays as stored
from pathways_jupyter.saved import on_devices
from pathways_jupyter.saved.arrays import Report
from pathways_jupyter.saved.holders import OUTSIDE, Holders, described
from pathways_jupyter.saved.resize import Resize
from pathways_jupyter.saved.saves import Saves
from pathways_jupyter.saved.values import UnsavableError

ARRAYS = "suspended_arrays"
"""The variable of a save that has all arrays in one list; those of the notebook are beside it."""
_LOOKS = 2
"""So many times arrays are written: what was made meanwhile needs a second time, what is still made then a question."""
_LARGEST_BESIDE_BYTES = 8 << 20
"""A variable with more than this that is not on TPUs is not saved by its name; it stays in this process anyway."""


class Suspension:
    """The arrays that something in this process holds, and what would be lost.

    Args:
      saves: Where they are saved.
      name: Of the save.
      slices: The session's devices, by slice.
      variables: Returns where names come from, in a dictionary of its own; they are also in the save by their names.
      live: Returns all arrays on the devices, also those inside others.

    Attributes:
      name: Of the save.
      place: Where they are saved, ``gs://...``.
      saved_at: When they were saved, in seconds since the epoch; 0 before.
      seconds: About how long saving them takes; None until something was saved in this bucket.
      unkept: What cannot be kept, or may not go on to work, a sentence each.
      outcome: How many arrays are back, and what is not, in sentences.
      left: What was not restored, and where it is; empty if all is back.
    """

    def __init__(
        self,
        saves: Saves,
        name: str,
        slices: Sequence[Sequence[Any]],
        variables: Callable[[], Mapping[str, Any]],
        live: Callable[[], Sequence[Any]],
    ) -> None:
        self._saves, self.name, self._variables, self._live = saves, name, variables, live
        self._by_slice = slices
        self._devices = tuple(device for each in slices for device in each)
        self._arrays: list[Any] = []
        self._described: list[Any] = []
        self._labels: list[str] = []
        self.place, self.outcome, self.left = saves.address(name), "", ""
        self.saved_at = 0.0
        self._look()
        self.seconds = saves.seconds(self.nbytes)

    def _look(self) -> None:
        """Find the arrays that are kept, and name what is not."""
        # Garbage holds arrays too, such as the frames of an error that was handled.
        gc.collect()
        known, ending = self._live(), list(on_devices.ending)
        inside = [container for containers in on_devices.ending.values() for container in containers]
        with on_devices.without_shards(known):
            arrays = on_devices.of_users(self._live())
            parts, variables = on_devices.find(self._devices), self._variables()
            holders = Holders(
                [*arrays, *parts, *ending],
                own=(known, arrays, parts, ending, *inside, self._arrays, variables),
                variables=(variables,),
                skip=on_devices.jaxs_own(arrays),
            )
        self._arrays, self._described, self._labels, self.unkept = [], [], [], []
        blockers: dict[str, list[str]] = {}
        unsavable: dict[str, list[str]] = {}
        hidden, lost = on_devices.hidden(arrays, holders), stored.lost(arrays)
        spare = on_devices.spare(lost)
        for each in arrays:
            if id(each) in spare:
                continue
            fixed = [
                holder for holder in holders.fixed.get(id(each), ()) if holder != OUTSIDE or id(each) not in hidden
            ]
            path = holders.names.get(id(each), "").removesuffix("._base_array")
            label = f"{path}: {array_type(each)}" if path else array_type(each)
            if id(each) in holders.settable:
                try:
                    self._described.append(stored.describe(each, self._devices, lost))
                    self._arrays.append(each)
                    self._labels.append(label)
                except (TypeError, ValueError) as error:
                    unsavable.setdefault(str(error), []).append(path or array_type(each))
            for holder in fixed:
                blockers.setdefault(described(holder, holders.names.get(id(holder), "")), []).append(label)
        self.unkept += [each_of(those, why) for why, those in unsavable.items()]
        self.unkept += [f"{some(those)}, held by {holder}" for holder, those in blockers.items()]
        self.unkept += on_devices.stuck(parts, holders)
        names = [holders.names.get(id(each), "a value without a name") for each in ending]
        self.unkept += [f"what {name} has on hosts" for name in names]
        self.unkept += [
            f"what {each} computes" for each in sorted(on_devices.computing(self._devices)) if each not in blockers
        ]
        if runs := on_devices.runs_elsewhere():
            # What else is in the way may be theirs, and is looked for again once they have ended.
            self.unkept = [f"{each}, which ends: train_loop goes on from there" for each in runs]

    @property
    def count(self) -> int:
        """Return the number of arrays that are kept."""
        return len(self._arrays)

    @property
    def slices(self) -> int:
        """Return the number of slices that they were on."""
        return len(self._by_slice)

    @property
    def nbytes(self) -> int:
        """Return their bytes, without replicas."""
        return _nbytes(self._arrays)

    def __str__(self) -> str:
        return _amount(self._arrays)

    def save(self, *, yes: bool | Collection[str], notebook: str, report: Report | None) -> None:
        """Have the hosts write the arrays, and look once more: what was made meanwhile is written, too.

        Args:
          yes: Also if some cannot be kept; or which of :attr:`unkept` was agreed to.
          report: Called with the progress, on another thread.

        Raises:
          UnsavableError: Not `yes`, and some cannot be kept; or a training run does not end.
          PathwaysError: The bucket or the hosts failed.
        """
        self._agree(yes)
        if self.end_runs(report):
            self._agree(yes)
        self._write(notebook, report)
        try:
            self._write_others(yes, notebook, report)
        except BaseException:
            # The arrays are still here: it is not to be offered as a save of theirs.
            self.forget()
            raise

    def end_runs(self, report: Report | None) -> bool:
        """End the training runs of other threads, and look again; return whether there were any.

        Raises:
          UnsavableError: One does not end.
        """
        runs = on_devices.runs_elsewhere()
        for each in runs:
            each.end(report)
        if runs:
            self._look()
        return bool(runs)

    def _write_others(self, yes: bool | Collection[str], notebook: str, report: Report | None) -> None:
        for look in range(_LOOKS):
            if look:
                self._write(notebook, report)
            written = self._arrays, self._described, self._labels
            if not self._has_others():
                break
            self._look()
            if not {*map(id, self._arrays)} - {*map(id, written[0])}:
                break
            self._agree(yes)
        else:
            if yes is not True:
                raise UnsavableError(
                    "Arrays are still being made while they are saved: something goes on computing.",
                    hint=advice("Let it end, or {suspend:--yes} keeps what there was when the saving began."),
                )
        # What is in the save, and not what the last look found.
        self._arrays, self._described, self._labels = written
        self.saved_at = time.time()

    def _has_others(self) -> bool:
        """Return whether there are arrays besides those that are written, and their parts."""
        # In a function of its own: its list would be one more holder of each.
        live = self._live()
        return bool({*map(id, live)} - {*map(id, self._arrays)} - on_devices.inner(live))

    def _agree(self, yes: bool | Collection[str]) -> None:
        left = self.unkept if yes is False else [] if yes is True else [each for each in self.unkept if each not in yes]
        if left:
            raise UnsavableError(
                f"Not everything can be kept: {some(left)}.",
                hint=advice("Let what computes end, put arrays in variables, or {suspend:--yes} goes without."),
            )

    def _write(self, notebook: str, report: Report | None) -> None:
        if not self._arrays:
            return
        variables = on_devices.worth_naming(self._variables(), self._arrays, _LARGEST_BESIDE_BYTES)
        variables[ARRAYS] = self._arrays
        save = self._saves.save(self.name, variables, self._devices, all_of=False, notebook=notebook, report=report)
        if ARRAYS not in save.variables:
            raise UnsavableError(f"The arrays cannot be saved: {some(save.unkept)}.")

    def misfits(self, slices: int) -> list[str]:
        """Describe the arrays whose sharding does not fit this number of slices."""
        resize = self._resize(slices)
        return [
            f"{label} with {getattr(each.sharding, 'spec', 'a chip of its own')}"
            for each, described, label in zip(self._arrays, self._described, self._labels, strict=True)
            if resize.described(described) is None
        ]

    def _resize(self, slices: int) -> Resize:
        return Resize(len(self._by_slice), slices, len(self._by_slice[0]))

    def require(self, slices: int) -> None:
        """Check that all arrays fit this number of slices.

        Raises:
          UnsavableError: Some do not.
        """
        if unfit := self.misfits(slices):
            raise UnsavableError(
                f"{count(len(unfit), 'array')} cannot be on {count(slices, 'slice')}: {some(unfit)}.",
                hint=advice("Resume with as many slices as before, or {resume:--yes} goes without them."),
            )

    def restore(self, slices: Sequence[Sequence[Any]], report: Report | None) -> list[Any]:
        """Put the saved arrays, on these slices' devices now, where the old ones are; without those that do not fit.

        Returns:
          The arrays that are at the places of the saved ones now, for :meth:`follow`.

        Raises:
          PathwaysError: The bucket or the hosts failed; nothing was changed.
        """
        devices, resize = [device for each in slices for device in each], self._resize(len(slices))
        placed: list[on_devices.Placed] = []

        def search() -> None:
            placed.append(on_devices.Placed(self._by_slice, self._arrays))

        if self._arrays:
            read = self._saves.load(self.name, devices, report, resize, meanwhile=search)[ARRAYS]
        else:
            # Only meshes, shardings and devices have to become others.
            read = []
            search()
        new = {id(old): array for old, array in zip(self._arrays, read, strict=True) if array is not None}
        del read
        done = placed.pop().move(slices, new)
        if on_devices.are_held(self._arrays):
            # Another thread has put one elsewhere meanwhile, or what holds it cannot be changed.
            search()
            done |= placed.pop().move(slices, new)
        left, back = self.misfits(len(slices)), [each for each in self._arrays if id(each) in done & new.keys()]
        left += [
            f"{label}, whose place is gone"
            for each, label in zip(self._arrays, self._labels, strict=True)
            if id(each) in new.keys() - done
        ]
        self.left = f"{some(left)}; saved as {self.name}" if left else ""
        self.outcome = f"{_amount(back)} back in place."
        self.outcome += f" Not restored: {self.left}." if left else ""
        return [new.get(id(each), each) for each in self._arrays]

    def follow(self, slices: Sequence[Sequence[Any]], arrays: list[Any]) -> None:
        """Look for these arrays at the next restore: those of :meth:`restore`, whose proxy was lost at its end.

        On another number of slices they have no place any more, and stay saved by name.
        """
        if len(slices) == len(self._by_slice):
            self._by_slice, self._arrays = [list(each) for each in slices], arrays

    def forget(self) -> None:
        """Delete what was saved, if all of it is back; a failure leaves it in the list of saves."""
        if self.left or not self._arrays:
            return
        with contextlib.suppress(PathwaysError):
            self._saves.delete(self.name)

    def require_saved(self) -> None:
        """Check that the save of these arrays is there.

        Raises:
          SessionError: It is not.
        """
        try:
            if self._arrays:
                self._saves.require(self.name)
        except PathwaysError as error:
            hint = advice("If it was deleted, its arrays are gone: {disconnect} ends the session.")
            raise SessionError(str(error), hint=hint) from error


def _nbytes(arrays: Sequence[Any]) -> int:
    return sum(int(each.size * each.dtype.itemsize) for each in arrays)


def _amount(arrays: Sequence[Any]) -> str:
    return f"{count(len(arrays), 'array')} ({size(_nbytes(arrays))})"
