"""Compiled programs: compiling, running, and what a client asks about them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

from pathways_jupyter.local.pathways.ifrt import arrays, attributes, dtypes, statuses, values, wire
from pathways_jupyter.local.pathways.ifrt.arrays import Array
from pathways_jupyter.local.pathways.ifrt.cells import Cell
from pathways_jupyter.local.pathways.ifrt.devices import MEMORY_KINDS, Devices
from pathways_jupyter.local.pathways.ifrt.lanes import Lanes
from pathways_jupyter.local.pathways.ifrt.programs import read_program
from pathways_jupyter.local.pathways.ifrt.shardings import Sharding, Shardings
from pathways_jupyter.local.pathways.ifrt.values import Spec

_MEMORY_STATS = (
    "generated_code_size_in_bytes",
    "argument_size_in_bytes",
    "output_size_in_bytes",
    "alias_size_in_bytes",
    "temp_size_in_bytes",
    "peak_memory_in_bytes",
    "host_generated_code_size_in_bytes",
    "host_argument_size_in_bytes",
    "host_output_size_in_bytes",
    "host_alias_size_in_bytes",
    "host_temp_size_in_bytes",
)


class Executable(Protocol):
    """A program that a session has compiled: XLA's, or a Python function that runs on hosts."""

    name: str
    device_ids: tuple[int, ...]

    @property
    def fingerprint(self) -> bytes:
        """Tells programs apart; empty when nothing does."""

    def outputs(self, inputs: Sequence[Array], device_ids: Sequence[int]) -> list[Spec]:
        """What an execution would return."""

    def execute(self, inputs: Sequence[Array], outputs: Sequence[Array], options: Any) -> Cell:
        """Starts one execution as soon as its inputs are there; never raises for what goes wrong in it.

        Args:
          options: An ExecuteOptionsProto.

        Returns:
          A cell that is settled when the execution was started, or could not be.
        """

    def describe(self, response: Any) -> None:
        """Fills a LoadedExecutableMetadataResponse."""

    def cost_analysis(self) -> dict[str, float]:
        """XLA's estimates, by name."""

    def text(self) -> str:
        """The optimized program for people to read."""

    def release(self) -> None:
        """Frees what it holds elsewhere; it is not used afterwards."""


class XlaExecutable:
    """A StableHLO program, compiled by this process's XLA."""

    def __init__(self, artifact: bytes, options: bytes, devices: Devices, shardings: Shardings, lanes: Lanes) -> None:
        """Compiles; this takes as long as it takes.

        Args:
          artifact: A StableHLO portable artifact.
          options: An encoded XlaCompileOptionsProto.

        Raises:
          Exception: Whatever XLA has against the program.
        """
        from jax._src.lib import xla_client as xc

        program = read_program(artifact)
        compile_options = wire.XlaCompileOptions.FromString(options).compile_options
        self.name = program.name
        self._results = program.results
        self._donated = program.donated
        self._devices = devices
        self._shardings = shardings
        self._lanes = lanes
        self._portable = compile_options.compile_portable_executable
        self.device_ids = _assigned(compile_options)
        devices.check_known(self.device_ids)
        self._executable = devices.client.compile_and_load(
            program.code,
            xc.DeviceList(tuple(devices.jax_devices[each] for each in self.device_ids)),
            xc.CompileOptions.ParseFromString(_compile_options_in(options)),
        )
        self._output_shardings = self._read_output_shardings()
        self._handlers_by_place: dict[tuple[int, ...], list[tuple[Spec, Any]]] = {}

    @property
    def fingerprint(self) -> bytes:
        """XLA's own fingerprint."""
        found: bytes | str | None = self._executable.fingerprint
        return found.encode() if isinstance(found, str) else found or b""

    def outputs(self, inputs: Sequence[Array], device_ids: Sequence[int]) -> list[Spec]:
        """What an execution would return."""
        return [spec for spec, _ in self._handlers(self._where(inputs, device_ids))]

    def execute(self, inputs: Sequence[Array], outputs: Sequence[Array], options: Any) -> Cell:
        """Starts one execution on the lane of its devices."""
        where = outputs[0].spec.sharding.device_ids if outputs and outputs[0].spec else self._where(inputs, ())
        handlers = [handler for _, handler in self._handlers(where)]
        kept = frozenset(options.non_donatable_input_indices)

        def work(sources: list[Any]) -> tuple[Sequence[Any], Any]:
            self._devices.check_up(where)
            results = self._executable.execute_sharded(sources, with_tokens=True)
            token = results.consume_token()
            made = results.consume_with_handlers(handlers)
            # Small programs are over by now; to find that out here saves a thread its work.
            return made, None if made and made[0].is_ready() else token

        return arrays.launch(
            work,
            inputs,
            outputs,
            consumed=[inputs[each] for each in self._consumed(kept) if each < len(inputs)],
            start=self._lanes.of(where).launch,
        )

    def describe(self, response: Any) -> None:
        """Fills in shardings, layouts, memory kinds, donation and memory use."""
        executable = self._executable
        for name in ("parameter", "output"):
            found = getattr(executable, f"get_{name}_shardings")()
            if found is not None:
                field = getattr(response, f"{name}_shardings")
                field.SetInParent()
                field.shardings.extend(each.SerializeToString() for each in found)
            layouts = getattr(response, f"{name}_layouts_list")
            layouts.SetInParent()
            for layout in getattr(executable, f"get_{name}_layouts")():
                layouts.layouts.add().minor_to_major.extend(layout._xla_layout().minor_to_major())
        for kinds in self._memory_kinds():
            response.output_memory_kinds.memory_kind_lists.add().memory_kinds.extend(kinds)
        response.donated_input_indices.SetInParent()
        response.donated_input_indices.donated_input_indices.extend(self._donated)
        stats = executable.get_compiled_memory_stats()
        response.compiled_memory_stats.SetInParent()
        for field in _MEMORY_STATS:
            setattr(response.compiled_memory_stats, field, getattr(stats, field))
        response.size_of_generated_code_in_bytes = executable.size_of_generated_code_in_bytes()

    def cost_analysis(self) -> dict[str, float]:
        """XLA's estimates, by name."""
        return {name: float(value) for name, value in (self._executable.cost_analysis() or {}).items()}

    def text(self) -> str:
        """The optimized HLO."""
        return str(self._executable.get_hlo_text())

    def release(self) -> None:
        """XLA's program goes with this object."""

    def _consumed(self, kept: Collection[int]) -> list[int]:
        return [each for each in self._donated if each not in kept]

    def _where(self, inputs: Sequence[Array], device_ids: Sequence[int]) -> tuple[int, ...]:
        """A portable program runs on the device that the request names, or that its arguments are on."""
        if not self._portable:
            return self.device_ids
        if device_ids:
            return tuple(device_ids)
        placed = [each.spec.sharding.device_ids for each in inputs if each.spec is not None]
        return placed[0] if placed else self.device_ids

    def _memory_kinds(self) -> list[list[str]]:
        """The memory of each result, for the one program that there is."""
        try:
            found = self._executable.get_output_memory_kinds()
        except RuntimeError:
            # Before jaxlib 0.10 XLA could not tell for CPUs, where all memory is a device's.
            found = []
        return found or [[MEMORY_KINDS[0]] * len(self._results)]

    def _read_output_shardings(self) -> list[bytes | None]:
        found = self._executable.get_output_shardings()
        if len(self.device_ids) == 1:
            return [None] * len(self._results)
        if found is None:
            return [_replicated()] * len(self._results)
        return [each.SerializeToString() for each in found]

    def _handlers(self, where: tuple[int, ...]) -> list[tuple[Spec, Any]]:
        found = self._handlers_by_place.get(where)
        if found is None:
            found = self._handlers_by_place[where] = self._make_handlers(where)
        return found

    def _make_handlers(self, where: tuple[int, ...]) -> list[tuple[Spec, Any]]:
        # The result handlers of jaxlib itself take other arguments from 0.12 on.
        from jax._src.interpreters import pxla

        (kinds,) = self._memory_kinds()
        made = []
        for (kind, shape), partitioning, memory_kind in zip(self._results, self._output_shardings, kinds, strict=True):
            sharding = self._output_sharding(where, partitioning, memory_kind)
            spec = Spec(kind, shape, sharding)
            if kind == dtypes.TOKEN:
                raise statuses.unimplemented("programs that return tokens are not supported")
            made.append((spec, pxla.global_aval_to_result_handler(values.aval(spec), sharding.jax, True)))
        return made

    def _output_sharding(self, where: tuple[int, ...], partitioning: bytes | None, memory_kind: str | None) -> Sharding:
        if partitioning is None:
            return self._shardings.single(where[0], memory_kind)
        return self._shardings.partitioned(where, partitioning, memory_kind)


def read_statistics(response: Any, executable: Executable) -> None:
    """Fills a LoadedExecutableCostAnalysisResponse."""
    attributes.write(response.attributes, executable.cost_analysis())


def _assigned(compile_options: Any) -> tuple[int, ...]:
    """The devices in the order in which an array's shards lie on them: replica by replica."""
    build = compile_options.executable_build_options
    if not build.HasField("device_assignment"):
        return (0,)
    assignment = build.device_assignment
    return tuple(
        computation.replica_device_ids[replica]
        for replica in range(assignment.replica_count)
        for computation in assignment.computation_devices
    )


def _compile_options_in(options: bytes) -> bytes:
    """The encoded CompileOptionsProto inside an XlaCompileOptionsProto, with every field that XLA knows.

    The schema here covers only part of it; the rest is kept as unknown fields and written back as it came.
    """
    encoded: bytes = wire.XlaCompileOptions.FromString(options).compile_options.SerializeToString()
    return encoded


def _replicated() -> bytes:
    from jax._src.lib import xla_client as xc

    sharding = xc.OpSharding()
    sharding.type = xc.OpSharding.Type.REPLICATED
    encoded: bytes = sharding.SerializeToString()
    return encoded
