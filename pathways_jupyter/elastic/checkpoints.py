"""Snapshots on a disk or in a bucket, written and read by Orbax; they outlive this process.

Orbax renames a checkpoint, or marks it, only when all of it has been written: one that was cut short is not listed, and
is removed by the next run. Needs the extra ``pathways_jupyter[elastic]``.
"""

from __future__ import annotations

import base64
import importlib.util
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pathways_jupyter.base.packages import require
from pathways_jupyter.elastic.batches import Position
from pathways_jupyter.elastic.errors import ElasticRuntimeError

if TYPE_CHECKING:
    from pathways_jupyter.elastic.reshard import Form

_STATE, _LEAVES, _EXTRA = "state", "leaves", "extra"
_BYTES, _POSITION = "bytes in base64", "position in the data"


class Checkpoints:
    """The checkpoints of one training run in one directory.

    Args:
      path: A local directory, or ``gs://BUCKET/DIRECTORY``; it is made if it does not exist.
      keep: How many to keep; an older one is removed when a newer one is whole.

    Raises:
      ConfigError: Orbax, or what it needs for a bucket, is not installed.
      ElasticRuntimeError: The bucket cannot be read.
    """

    def __init__(self, path: str, *, keep: int) -> None:
        in_bucket = path.startswith("gs://")
        require("elastic", f"Keeping snapshots in {path}", "etils", "orbax.checkpoint")
        # These paths go through TensorFlow where that is installed.
        if in_bucket and importlib.util.find_spec("tensorflow") is None:
            require("elastic", f"Keeping snapshots in {path}", "gcsfs")
        import orbax.checkpoint as ocp
        from etils import epath

        place = epath.Path(path) if "://" in path else epath.Path(path).expanduser().absolute()
        self.path = path
        self._ocp = ocp
        # Orbax's own thread is not needed: snapshots are written by one already.
        options = ocp.CheckpointManagerOptions(max_to_keep=keep, create=True, enable_async_checkpointing=False)
        handlers = {_STATE: ocp.StandardCheckpointHandler(), _EXTRA: ocp.JsonCheckpointHandler()}
        try:
            self._manager = ocp.CheckpointManager(place, options=options, item_handlers=handlers)
        except Exception as error:
            if not in_bucket:
                raise
            raise ElasticRuntimeError(
                f"Snapshots cannot be kept in {path}: {error}",
                hint="Check the bucket's name, and that this account may list, read, write and delete its objects.",
            ) from error
        self._lock = threading.Lock()

    def steps(self) -> list[int]:
        """Return the steps of all whole checkpoints, oldest first."""
        with self._lock:
            return sorted(self._manager.all_steps())

    def write(self, step: int, arrays: Sequence[Any], extra: Any) -> None:
        """Write a checkpoint; no-op if there is one of this step already.

        Raises:
          ElasticRuntimeError: `extra` cannot be written as JSON.
          Exception: Orbax's own errors.
        """
        args = self._ocp.args
        described = _to_json(extra)
        with self._lock:
            # A step that is repeated after a loss gives the same state.
            if step not in self._manager.all_steps():
                items = {
                    _STATE: args.StandardSave({_LEAVES: list(arrays)}),
                    _EXTRA: args.JsonSave({"extra": described}),
                }
                self._manager.save(step, args=args.Composite(**items), force=True)

    def extra(self, step: int) -> Any:
        """Return what was written beside the arrays of `step`."""
        args = self._ocp.args
        with self._lock:
            read = self._manager.restore(step, args=args.Composite(**{_EXTRA: args.JsonRestore()}))
        return _from_json(read[_EXTRA]["extra"])

    def require(self, step: int, form: Form) -> None:
        """Check that the checkpoint of `step` is one of a state of this form.

        Raises:
          ElasticRuntimeError: It is not.
        """
        with self._lock:
            found = self._manager.item_metadata(step)[_STATE]
        written = [(tuple(each.shape), str(each.dtype)) for each in found.tree[_LEAVES]]
        expected = [(tuple(each.shape), str(each.dtype)) for each in form.shapes]
        if written != expected:
            differ = next((pair for pair in zip(written, expected, strict=False) if pair[0] != pair[1]), None)
            said = f"an array {differ[0]} for {differ[1]}" if differ else f"{len(written)} arrays for {len(expected)}"
            raise ElasticRuntimeError(
                f"The checkpoint before step {step} in {self.path} is not of this state: it has {said}.",
                hint="Give the state that the run began with, or another directory.",
            )

    def read(self, step: int, form: Form, shardings: Sequence[Any]) -> list[Any]:
        """Return the arrays of `step` with `shardings`; each device's part is read by itself."""
        import jax

        args = self._ocp.args
        expected = [
            jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding)
            for shape, sharding in zip(form.shapes, shardings, strict=True)
        ]
        with self._lock:
            read = self._manager.restore(
                step, args=args.Composite(**{_STATE: args.StandardRestore({_LEAVES: expected})})
            )
        return list(read[_STATE][_LEAVES])


def _to_json(value: Any) -> Any:
    """Return `value` as JSON values; the inverse of :func:`_from_json`."""
    if isinstance(value, Position):
        return {_POSITION: [value.count, value.used, _to_json(value.state)]}
    if isinstance(value, bytes):
        return {_BYTES: base64.b64encode(value).decode("ascii")}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _to_json(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_json(each) for each in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ElasticRuntimeError(
        f"A {type(value).__name__} cannot be written beside a checkpoint.",
        hint="Let get_state return numbers, strings, bytes, lists and dicts.",
    )


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_json(each) for each in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {_POSITION}:
        count, used, state = value[_POSITION]
        return Position(count, used, _from_json(state))
    if set(value) == {_BYTES}:
        return base64.b64decode(value[_BYTES])
    return {key: _from_json(each) for key, each in value.items()}
