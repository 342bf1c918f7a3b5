"""Arrays that go to a bucket and come back without passing through the client: what Pathways calls persistence.

Each is a Zarr array (version 2) at ``LOCATION/NAME``, with one chunk for each shard; that is what Orbax expects to find
there. TensorStore writes and reads them.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pathways_jupyter.local.pathways.ifrt import array_values, dtypes, session_arrays, statuses
from pathways_jupyter.local.pathways.ifrt.array_values import ArraySpec
from pathways_jupyter.local.pathways.ifrt.executables import OpaqueExecutable
from pathways_jupyter.local.pathways.ifrt.machine import Machine
from pathways_jupyter.local.pathways.ifrt.plugins import buckets
from pathways_jupyter.local.pathways.ifrt.promises import Promise
from pathways_jupyter.local.pathways.ifrt.session_arrays import Array
from pathways_jupyter.local.pathways.ifrt.statuses import Code, IfrtStatusError

_MLIR_PREFIXES = {"pred": "i1", "s": "i", "u": "ui"}


class _StoredArray:
    """Path of one array, and the time limit of a request about it."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        location, self.name = (base64.b64decode(request[each]).decode() for each in ("b64_location", "b64_name"))
        self.bucket, directory = buckets.split(location)
        self.path = "/".join(each for each in (directory, self.name) if each)
        self.timeout: float = request["timeout"]["seconds"] + request["timeout"]["nanos"] / 1e9
        self.device_ids = tuple(request["devices"]["device_ids"])
        self.partitioning = base64.b64decode(request["b64_hlo_sharding_string"])

    def __str__(self) -> str:
        return f"{buckets.SCHEME}{self.bucket}/{self.path}"

    def open(self, deadline: float, **options: Any) -> Any:
        """Return the open TensorStore; raises its errors, which name the place."""
        kvstore = {"driver": "gcs", "bucket": self.bucket, "path": f"{self.path}/"}
        spec = {"driver": "zarr", "kvstore": kvstore, **options.pop("spec", {})}
        return self.result(_tensorstore().open(spec, **options), deadline)

    def result(self, future: Any, deadline: float) -> Any:
        """Wait for a future of TensorStore.

        Raises:
          IfrtStatusError: DEADLINE_EXCEEDED.
        """
        try:
            return future.result(timeout=max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            raise IfrtStatusError(Code.DEADLINE_EXCEEDED, f"{self} took longer than {self.timeout:g} s") from None


class _Persistence(OpaqueExecutable):
    kind = "requests about arrays in a bucket"

    def __init__(self, requests: Sequence[Mapping[str, Any]], machine: Machine) -> None:
        self._arrays = [_StoredArray(each) for each in requests]
        self._machine = machine
        self.device_ids = tuple(dict.fromkeys(device for array in self._arrays for device in array.device_ids))
        if not self.device_ids:
            raise statuses.invalid("a request about arrays in a bucket names at least one array and one device")

    def _launch(
        self, work: Callable[[list[Any]], list[Any]], inputs: Sequence[Array], outputs: Sequence[Array]
    ) -> Promise:
        def checked(sources: list[Any]) -> tuple[list[Any], None]:
            self._machine.devices.check_up(self.device_ids)
            return work(sources), None

        return session_arrays.launch(checked, inputs, outputs, start=session_arrays.on_thread(self.name))


class Write(_Persistence):
    """Writes its arguments, one for each request."""

    name = "persistence_write"

    def outputs(self, inputs: Sequence[Array]) -> list[ArraySpec]:
        """Return nothing."""
        if len(inputs) != len(self._arrays):
            raise statuses.invalid(f"{len(self._arrays)} arrays are to be written, and {len(inputs)} were given")
        return []

    def execute(self, inputs: Sequence[Array], outputs: Sequence[Array], options: Any) -> Promise:
        """Start to write on a thread of its own."""
        specs = [each.spec for each in inputs]

        def work(sources: list[Any]) -> list[Any]:
            begun = time.monotonic()
            writes = [
                (array, self._write(array, spec, source, begun + array.timeout))
                for array, spec, source in zip(self._arrays, specs, sources, strict=True)
            ]
            for array, futures in writes:
                for future in futures:
                    array.result(future, begun + array.timeout)
            return []

        return self._launch(work, inputs, outputs)

    @staticmethod
    def _write(array: _StoredArray, spec: ArraySpec | None, source: Any, deadline: float) -> list[Any]:
        """Start to write one array; each shard once, however many devices have it."""
        assert spec is not None
        if spec.is_strings:
            raise statuses.unimplemented("arrays of strings cannot be written to a bucket")
        shape, chunks = list(spec.shape), [max(1, each) for each in spec.sharding.shard_shape(spec.shape)]
        metadata = {"shape": shape, "chunks": chunks, "compressor": None}
        store = array.open(
            deadline,
            spec={"metadata": metadata},
            dtype=_tensorstore().dtype(dtypes.to_numpy(spec.kind)),
            create=True,
            delete_existing=True,
        )
        # Slices cannot be keys of a dict in all supported versions of Python.
        shards = {str(each.index): each for each in source.addressable_shards}
        return [store[each.index].write(np.asarray(each.data)) for each in shards.values()]


class Read(_Persistence):
    """Reads arrays, one for each request."""

    name = "persistence_read"

    def __init__(self, requests: Sequence[Mapping[str, Any]], machine: Machine) -> None:
        super().__init__(requests, machine)
        self._specs = []
        for array, request in zip(self._arrays, requests, strict=True):
            shape = tuple(request["shape"]["dimensions"])
            kind = _kind(request["shape"]["xla_primitive_type_str"])
            self._specs.append(ArraySpec(kind, shape, machine.shardings.over(array.device_ids, array.partitioning)))

    def outputs(self, inputs: Sequence[Array]) -> list[ArraySpec]:
        """Return the outputs that the client declared."""
        del inputs
        return list(self._specs)

    def execute(self, inputs: Sequence[Array], outputs: Sequence[Array], options: Any) -> Promise:
        """Start to read on a thread of its own."""

        def work(_: list[Any]) -> list[Any]:
            begun = time.monotonic()
            reads = [
                (array, spec, self._read(array, spec, begun + array.timeout))
                for array, spec in zip(self._arrays, self._specs, strict=True)
            ]
            return [self._arrived(array, spec, read, begun + array.timeout) for array, spec, read in reads]

        return self._launch(work, inputs, outputs)

    @staticmethod
    def _read(array: _StoredArray, spec: ArraySpec, deadline: float) -> dict[str, Any]:
        """Start to read one array; each part once, by the text of its index.

        Raises:
          IfrtStatusError: It has another shape or element type.
        """
        store = array.open(deadline, open=True)
        dtype = dtypes.to_numpy(spec.kind)
        if tuple(store.shape) != spec.shape or store.dtype.numpy_dtype != dtype:
            raise statuses.invalid(
                f"{array} is {store.dtype.name}{list(store.shape)}, and {dtype.name}{list(spec.shape)} was asked for"
            )
        parts = spec.sharding.jax.addressable_devices_indices_map(spec.shape).values()
        return {text: store[index].read() for text, index in {str(each): each for each in parts}.items()}

    def _arrived(self, array: _StoredArray, spec: ArraySpec, reads: Mapping[str, Any], deadline: float) -> Any:
        parts = {text: array.result(read, deadline) for text, read in reads.items()}
        index_of = spec.sharding.jax.addressable_devices_indices_map(spec.shape)
        devices = [self._machine.devices.jax_devices[each] for each in spec.sharding.device_ids]
        return array_values.from_host(spec, [parts[str(index_of[each])] for each in devices], devices)


def _kind(xla_name: str) -> int:
    """Return the kind of XLA's element type, e.g. ``S32``, which is ``i32`` to MLIR."""
    name = xla_name.lower()
    for prefix, mlir in _MLIR_PREFIXES.items():
        if name.startswith(prefix):
            name = mlir + name.removeprefix(prefix)
            break
    return dtypes.from_mlir(name)


def _tensorstore() -> Any:
    try:
        import tensorstore
    except ImportError:
        raise statuses.unimplemented(
            "writing and reading arrays in a bucket needs TensorStore: pip install 'pathways_jupyter[elastic]',"
            " and connect again"
        ) from None
    return tensorstore
