"""Colocated Python: programs that are Python functions, run on the hosts of their devices.

*What* runs is JAX's own pickle inside a custom-call program. It runs on the hosts' :mod:`sidecars`: this module only
keeps calls in the order that JAX promises (those of one client thread that share a device) and makes arrays of the
results.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from typing import Any

from pathways_jupyter.local.pathways.ifrt import messages, promises, session_arrays, statuses, values
from pathways_jupyter.local.pathways.ifrt.devices import Devices
from pathways_jupyter.local.pathways.ifrt.promises import Promise
from pathways_jupyter.local.pathways.ifrt.session_arrays import Array
from pathways_jupyter.local.pathways.ifrt.shardings import Shardings
from pathways_jupyter.local.pathways.ifrt.sidecars import Sidecars
from pathways_jupyter.local.pathways.ifrt.values import Spec

PROGRAM_TYPE = "jax_colocated_python_v0.0.1"


class Order:
    """The calls of one session that later calls have to wait for: the last of each client thread on each device."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[tuple[int, int], Promise] = {}

    def before(self, stream: int, device_ids: Sequence[int]) -> list[Promise]:
        """What must be over before a call of this client thread on these devices."""
        with self._lock:
            return [self._last[stream, each] for each in device_ids if (stream, each) in self._last]

    def outstanding(self) -> list[Promise]:
        """The calls after which none is left of those noted so far."""
        with self._lock:
            return list(self._last.values())

    def note(self, stream: int, device_ids: Sequence[int], call: Promise) -> None:
        """Puts later calls behind `call`."""
        keys = [(stream, each) for each in device_ids]
        with self._lock:
            self._last.update(dict.fromkeys(keys, call))

        def leave() -> None:
            with self._lock:
                for key in keys:
                    if self._last.get(key) is call:
                        del self._last[key]

        call.then(leave)


class PythonExecutable:
    """A colocated Python function as a session's executable."""

    def __init__(
        self, program: bytes, sidecars: Sidecars, order: Order, devices: Devices, shardings: Shardings
    ) -> None:
        """Brings the function to its hosts.

        Args:
          program: An encoded CustomCallProgramProto.

        Raises:
          StatusError: It is another kind of program, or cannot be loaded.
        """
        message = messages.CustomCallProgram.FromString(program)
        if message.type != PROGRAM_TYPE:
            raise statuses.unimplemented(f"programs of type {message.type} are not supported")
        self.name: str = message.name
        self.device_ids: tuple[int, ...] = tuple(message.devices.device_ids)
        self._devices = devices
        self._order = order
        self._outputs = [values.read_spec(each, shardings) for each in message.output_specs]
        inputs = [values.read_spec(each, shardings) for each in message.input_specs]
        self._function = sidecars.load(message.serialized_program_text, inputs, self._outputs, self.device_ids)

    @property
    def fingerprint(self) -> bytes:
        """Functions have none."""
        return b""

    def outputs(self, inputs: Sequence[Array], device_ids: Sequence[int]) -> list[Spec]:
        """What the client declared."""
        del inputs, device_ids
        return list(self._outputs)

    def execute(self, inputs: Sequence[Array], outputs: Sequence[Array], options: Any) -> Promise:
        """Calls the function on a thread of its own, after the calls that JAX orders before it."""
        stream = options.execution_stream_id
        call = session_arrays.launch(
            self._call,
            inputs,
            outputs,
            after=self._order.before(stream, self.device_ids),
            start=lambda job: threading.Thread(
                target=job, name=f"colocated {self.name} {next(_numbers)}", daemon=True
            ).start(),
        )
        self._order.note(stream, self.device_ids, call)
        return call

    def describe(self, response: Any) -> None:
        """Empty: XLA has no information about Python code."""
        nothing = statuses.unimplemented("colocated Python functions have no layouts or memory statistics")
        nothing.write_to(response.parameter_layouts_error)
        nothing.write_to(response.output_layouts_error)
        nothing.write_to(response.output_memory_kinds.status)
        nothing.write_to(response.compiled_memory_stats_error)
        response.donated_input_indices.SetInParent()

    def cost_analysis(self) -> dict[str, float]:
        """There is none."""
        raise statuses.unimplemented("colocated Python functions have no cost analysis")

    def text(self) -> str:
        """There is none."""
        raise statuses.unimplemented("colocated Python functions have no program text")

    def release(self) -> None:
        """Lets the hosts forget the function, after all calls that were made before.

        JAX keeps a colocated object alive by the functions that refer to it, and lets go of one as soon as it has
        called another.
        """
        promises.when_all(self._order.outstanding(), self._function.release)

    def _call(self, sources: list[Any]) -> tuple[list[Any], None]:
        self._devices.check_up(self.device_ids)
        made = self._function.call([values.split(source) for source in sources])
        return [values.join(spec, shards) for spec, shards in zip(self._outputs, made, strict=True)], None


_numbers = itertools.count(1)
