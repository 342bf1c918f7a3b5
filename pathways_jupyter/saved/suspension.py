"""All arrays of a process on TPUs, saved while their slices are free, and put back where they were."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

from pathways_jupyter.base import interrupts
from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.text import array_type, count, size, some
from pathways_jupyter.saved import arrays as stored
from pathways_jupyter.saved import places
from pathways_jupyter.saved.arrays import Report
from pathways_jupyter.saved.resize import Resize
from pathways_jupyter.saved.saves import Saves
from pathways_jupyter.saved.values import UnsavableError


class Suspension:
    """The arrays that variables reach, and what would be lost.

    Args:
      saves: Where they are saved.
      name: Of the save.
      slices: The session's devices, by slice.
      variables: Where to look for arrays, and put them back.
      live: Returns all arrays on the devices.

    Attributes:
      name: Of the save.
      count: Number of arrays that are kept.
      place: Where they are saved, ``gs://...``.
      nbytes: Their bytes, without replicas.
      seconds: About how long saving them takes; None until something was saved in this bucket.
      unkept: What cannot be kept, a sentence each.
      left: What was not restored because it did not fit, and where it is; empty if all is back.
    """

    def __init__(
        self,
        saves: Saves,
        name: str,
        slices: Sequence[Sequence[Any]],
        variables: MutableMapping[str, Any],
        live: Callable[[], Sequence[Any]],
    ) -> None:
        devices = tuple(device for each in slices for device in each)
        self._saves, self.name, self._devices, self._variables = saves, name, devices, variables
        self._slices = len(slices)
        on = set(devices)
        found = [
            each
            for each in places.arrays_in(variables)
            if not each.is_deleted() and not on.isdisjoint(each.sharding.device_set)
        ]
        self._arrays, self._described, self.unkept = [], [], []
        for each in found:
            try:
                self._described.append(stored.describe(each, devices))
                self._arrays.append(each)
            except (TypeError, ValueError) as error:
                self.unkept.append(f"{array_type(each)} {error}")
        if unreached := places.unreached(live(), found):
            # Only garbage may hold them, such as the frames of an error that was handled.
            gc.collect()
            unreached = places.unreached(live(), found)
        self.unkept += unreached
        self.count, self.place = len(self._arrays), saves.place(name)
        self.nbytes = sum(int(each.size * each.dtype.itemsize) for each in self._arrays)
        self.left = ""
        self.seconds = saves.seconds(self.nbytes)

    def __str__(self) -> str:
        return f"{count(self.count, 'array')} ({size(self.nbytes)})"

    def save(self, *, yes: bool, notebook: str, report: Report | None) -> None:
        """Have the hosts write the arrays, and check that they did.

        Args:
          yes: Also if some cannot be kept.
          report: Called with the progress, on another thread.

        Raises:
          UnsavableError: Not `yes`, and some cannot be kept.
          PathwaysError: The bucket or the hosts failed.
        """
        if self.unkept and not yes:
            raise UnsavableError(
                f"{count(len(self.unkept), 'array')} cannot be kept: {some(self.unkept)}.",
                hint=advice("Put them in variables, or {suspend:--yes} goes without them."),
            )
        self._saves.save(
            self.name, {"arrays": self._arrays}, self._devices, all_of=True, notebook=notebook, report=report
        )

    def misfits(self, slices: int) -> list[str]:
        """Describe the arrays whose sharding does not fit this number of slices."""
        resize = self._resize(slices)
        return [
            f"{array_type(each)} with {getattr(each.sharding, 'spec', 'a chip of its own')}"
            for each, described in zip(self._arrays, self._described, strict=True)
            if resize.described(described) is None
        ]

    def _resize(self, slices: int) -> Resize:
        return Resize(self._slices, slices, len(self._devices) // self._slices)

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

    def restore(self, slices: Sequence[Sequence[Any]], report: Report | None) -> None:
        """Put the saved arrays, on these slices' devices now, where the old ones are; without those that do not fit.

        Raises:
          PathwaysError: The bucket or the hosts failed; nothing was changed.
        """
        devices, resize = [device for each in slices for device in each], self._resize(len(slices))
        read = self._saves.load(self.name, devices, report, resize)["arrays"]
        new = {id(old): array for old, array in zip(self._arrays, read, strict=True) if array is not None}
        if left := self.misfits(len(slices)):
            self.left = f"{some(left)}; saved as {self.name}"
        move = resize.mover(self._devices, devices)
        # Not some of the variables: names of one array would become names of two when it is tried again.
        with interrupts.defer_sigint():
            places.replace(self._variables, lambda value: new[id(value)] if id(value) in new else move(value))

    def forget(self) -> None:
        """Delete what was saved, if all of it is back; a failure leaves it in the list of saves."""
        if self.left:
            return
        with contextlib.suppress(PathwaysError):
            self._saves.delete(self.name)
