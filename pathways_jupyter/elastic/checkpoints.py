"""Snapshots on a disk or in a bucket, written and read by Orbax; they outlive this process.

Orbax renames a checkpoint, or marks it, only when all of it has been written: one that was cut short is not listed, and
is removed by the next run. Needs the extra ``pathways_jupyter[elastic]``.

In a bucket the TPU hosts write and read the arrays themselves, if the proxy offers that. Otherwise, and on a disk, they
go through this process; what either writes, the other can read.
"""

from __future__ import annotations

import base64
import functools
import importlib.util
import logging
import threading
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pathways_jupyter.base.packages import require
from pathways_jupyter.base.text import absolute_path
from pathways_jupyter.elastic.batches import Position
from pathways_jupyter.elastic.errors import ElasticRuntimeError, is_proxy_gone
from pathways_jupyter.session.kernel import storage

if TYPE_CHECKING:
    from pathways_jupyter.elastic.goodput import Writer
    from pathways_jupyter.elastic.reshard import Form

_STATE, _LEAVES, _EXTRA = "state", "leaves", "extra"
_BYTES, _POSITION = "bytes in base64", "position in the data"


class Checkpoints:
    """The checkpoints of one training run in one directory.

    Args:
      path: A local directory, or ``gs://BUCKET/DIRECTORY``; it is made if it does not exist.
      keep: How many to keep; an older one is removed when a newer one is whole.
      by_hosts: Whether the hosts write to a bucket themselves, if the proxy offers that.

    Attributes:
      notes: What a user should know about writing and reading here, each said once; the reader removes them.

    Raises:
      ConfigError: Orbax, or what it needs for a bucket, is not installed.
      ElasticRuntimeError: The bucket cannot be read.
      SessionError: It is the embedded cluster's, and this process is not connected to that.
    """

    def __init__(self, path: str, *, keep: int, by_hosts: bool = True) -> None:
        in_bucket = path.startswith("gs://")
        storage.require_adopted(path)
        require("elastic", f"Keeping snapshots in {path}", "etils", "orbax.checkpoint")
        # These paths go through TensorFlow where that is installed.
        if in_bucket and importlib.util.find_spec("tensorflow") is None:
            require("elastic", f"Keeping snapshots in {path}", "gcsfs")
        import jax
        import numpy as np
        import orbax.checkpoint as ocp
        from etils import epath

        directory = epath.Path(path) if "://" in path else epath.Path(absolute_path(path))
        self.path = path
        self.notes: deque[str] = deque()
        self._ocp = ocp
        # Not Orbax's own table of handlers, which pathwaysutils changes.
        arrays: Any = ocp.type_handlers.ArrayHandler()
        self._by_hosts = by_hosts and in_bucket
        if self._by_hosts:
            try:
                arrays = _hosts_handler()()
            except ImportError as error:
                self._decline(str(error))
        self._arrays = arrays
        registry = ocp.type_handlers.create_type_handler_registry(
            (jax.Array, arrays), (np.ndarray, ocp.type_handlers.NumpyHandler())
        )
        # In a bucket, always the one format that hosts write and read.
        handler = ocp.PyTreeCheckpointHandler(use_ocdbt=not in_bucket, type_handler_registry=registry)
        # Orbax's own thread is not needed: snapshots are written by one already.
        options = ocp.CheckpointManagerOptions(max_to_keep=keep, create=True, enable_async_checkpointing=False)
        handlers = {_STATE: handler, _EXTRA: ocp.JsonCheckpointHandler()}
        try:
            self._manager = ocp.CheckpointManager(directory, options=options, item_handlers=handlers)
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

    def write(self, step: int, arrays: Sequence[Any], extra: Any) -> Writer | None:
        """Write a checkpoint, and return what wrote the arrays; no-op if there is one of this step already.

        Args:
          arrays: Of JAX or NumPy.

        Raises:
          ElasticRuntimeError: `extra` cannot be written as JSON.
          JaxRuntimeError: A slice or the proxy was lost meanwhile.
          Exception: Orbax's own errors.
        """
        import numpy as np

        args = self._ocp.args
        described = _to_json(extra)

        def save(arrays: list[Any]) -> None:
            items = {_STATE: args.PyTreeSave({_LEAVES: arrays}), _EXTRA: args.JsonSave({"extra": described})}
            self._manager.save(step, args=args.Composite(**items), force=True)

        with self._lock:
            # A step that is repeated after a loss gives the same state.
            if step in self._manager.all_steps():
                return None
            if self._hosts_serve(arrays):
                try:
                    save(list(arrays))
                except Exception as error:
                    self._fall_back(error)
                else:
                    return "hosts"
            save([np.asarray(array) for array in arrays])
            return "notebook"

    def _hosts_serve(self, arrays: Sequence[Any]) -> bool:
        """Return whether the hosts write and read such arrays here, as far as that is known."""
        import jax

        if not jax.devices()[0].client.runtime_type.startswith("proxy/"):
            return False
        if self._by_hosts and (kind := _unreadable([array.dtype for array in arrays])):
            self._decline(f"hosts cannot read arrays of {kind}")
        return self._by_hosts

    def _fall_back(self, error: Exception) -> None:
        """Decline the hosts' service after `error`, or raise it if it is about a lost slice or proxy."""
        # NOT_FOUND or INTERNAL may be about the bucket. If it was a loss, the notebook does not get far either.
        if is_proxy_gone(error) or "DATA_LOSS" in str(error):
            raise error
        self._decline(str(error).partition("\n")[0])

    def _decline(self, reason: str) -> None:
        """From now on arrays go through this process."""
        self._by_hosts = False
        self.notes.append(f"Snapshots in {self.path} go through the notebook: {reason}")

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
            metadata = self._manager.item_metadata(step)[_STATE]
        written = [(tuple(each.shape), str(each.dtype)) for each in metadata.tree[_LEAVES]]
        expected = [(tuple(each.shape), str(each.dtype)) for each in form.shapes]
        if written != expected:
            differ = next((pair for pair in zip(written, expected, strict=False) if pair[0] != pair[1]), None)
            said = f"an array {differ[0]} for {differ[1]}" if differ else f"{len(written)} arrays for {len(expected)}"
            raise ElasticRuntimeError(
                f"The checkpoint before step {step} in {self.path} is not of this state: it has {said}.",
                hint="Give the state that the run began with, or another directory.",
            )

    def read(self, step: int, form: Form, shardings: Sequence[Any]) -> list[Any]:
        """Return the arrays of `step` with `shardings`; each device's part is read by itself.

        Raises:
          JaxRuntimeError: A slice or the proxy was lost meanwhile.
          Exception: Orbax's own errors.
        """
        import jax

        args = self._ocp.args
        expected = {
            _LEAVES: [
                jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding)
                for shape, sharding in zip(form.shapes, shardings, strict=True)
            ]
        }
        how = self._ocp.checkpoint_utils.construct_restore_args(expected)

        def restored(*, by_hosts: bool) -> list[Any]:
            self._arrays.by_hosts = by_hosts
            composite = args.Composite(**{_STATE: args.PyTreeRestore(expected, restore_args=how)})
            return list(jax.block_until_ready(self._manager.restore(step, args=composite)[_STATE][_LEAVES]))

        with self._lock:
            if self._hosts_serve(form.shapes):
                try:
                    return restored(by_hosts=True)
                except Exception as error:
                    # Perhaps another version wrote it, in a format that hosts cannot read.
                    self._fall_back(error)
            return restored(by_hosts=False)


@functools.cache
def _hosts_handler() -> Any:
    """Return the class of Orbax's handler that has hosts write arrays, and read them unless `by_hosts` is unset.

    Its requests are plugin programs, which a proxy need not serve: what Pathways calls persistence.

    Raises:
      ImportError: This version of Orbax has none; it is private to it.
    """
    import orbax.checkpoint as ocp
    from orbax.checkpoint._src.serialization import cloud_pathways_array_handler

    # Orbax warns with every checkpoint that is not in its other format, which hosts cannot write.
    logging.getLogger("absl").addFilter(lambda record: "Skipping merge of OCDBT" not in record.getMessage())

    class HostArrays(cloud_pathways_array_handler.CloudPathwaysArrayHandler):  # type: ignore[misc]
        by_hosts = True

        async def deserialize(self, infos: Sequence[Any], args: Sequence[Any] | None = None) -> Any:
            if self.by_hosts:
                return await super().deserialize(infos, args)
            return await ocp.type_handlers.ArrayHandler.deserialize(self, infos, args)

    return HostArrays


def _unreadable(dtypes: Sequence[Any]) -> str:
    """Return the first type of elements that hosts cannot read; empty if there is none."""
    import numpy as np
    from orbax.checkpoint._src.serialization import cloud_pathways_helper

    for dtype in dtypes:
        try:
            cloud_pathways_helper.dtype_to_xla_primitive_type_str(np.dtype(dtype))
        except ValueError:
            return str(dtype)
    return ""


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
