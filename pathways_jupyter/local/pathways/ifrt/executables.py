"""Executables, of XLA and opaque ones: compiling and running them, and what a client asks about them."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any

from pathways_jupyter.local.pathways.ifrt import array_values, messages, session_arrays, statuses
from pathways_jupyter.local.pathways.ifrt.array_values import ArraySpec
from pathways_jupyter.local.pathways.ifrt.devices import MEMORY_KINDS
from pathways_jupyter.local.pathways.ifrt.machine import Machine
from pathways_jupyter.local.pathways.ifrt.promises import Promise
from pathways_jupyter.local.pathways.ifrt.session_arrays import Array
from pathways_jupyter.local.pathways.ifrt.shardings import Sharding
from pathways_jupyter.local.pathways.ifrt.stablehlo import read_program

_log = logging.getLogger(__name__)

_TPU_OPTIONS = (
    "megascale_",
    "tpu_",
    "xla_enable_async_",
    "xla_enable_transpose_trace",
    "xla_jf_",
    "xla_latency_hiding_scheduler_",
    "xla_lhs_",
    "xla_llo_",
    "xla_max_concurrent_",
    "xla_mosaic_",
    "xla_msa_",
    "xla_sc_",
    "xla_should_",
    "xla_tpu_",
    "xla_vf_",
)
"""Prefixes of options that only a TPU's compiler has. They tune and change no result, so that a CPU can do without."""
_ALIAS = re.compile(r"\((\d+), \{(\d*)\}, (?:may|must)-alias\)")
_NO_CHAINS = ("xla_cpu_experimental_ynn_fusion_type", "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT")
"""A chain of operations is not one call of a library of kernels (YNNPACK), in which a profile shows only the last line.

Single products still are, so that they are those of plain CPU devices to the last bit. The client sends its own
process's defaults with each program, so that a flag of this process would have no effect.
"""


class XlaExecutable:
    """A program compiled by this process's XLA; making one takes as long as it takes.

    Args:
      artifact: A StableHLO portable artifact.
      options: An encoded XlaCompileOptionsProto.

    Raises:
      IfrtStatusError: The program cannot be used here.
      Exception: Whatever else XLA has against the program.
    """

    def __init__(self, artifact: bytes, options: bytes, machine: Machine) -> None:
        from jax._src.interpreters import pxla
        from jax._src.lib import xla_client as xc

        program = read_program(artifact)
        requested = messages.XlaCompileOptions.FromString(options).compile_options
        self.name = program.name
        self.device_ids = _device_ids(requested.executable_build_options)
        device_list = xc.DeviceList(tuple(machine.devices.jax_devices[each] for each in self.device_ids))
        executable = machine.devices.client.compile_and_load(program.code, device_list, _compile_options(requested))
        self._executable = executable
        self._machine = machine
        # The arguments whose memory becomes a result's.
        self._donated = _donated(executable) if program.offered else []
        # The memory of each result, for the one program that there is.
        (self._memory_kinds,) = executable.get_output_memory_kinds() or [[MEMORY_KINDS[0]] * len(program.results)]
        self._results = [
            ArraySpec(kind, shape, each)
            for (kind, shape), each in zip(program.results, self._result_shardings(), strict=True)
        ]
        # Make arrays of the results. Those of jaxlib itself take other arguments from 0.12 on.
        self._handlers = [
            pxla.global_aval_to_result_handler(array_values.aval(each.kind, each.shape), each.sharding.jax, True)
            for each in self._results
        ]

    @property
    def fingerprint(self) -> bytes:
        """XLA's own fingerprint."""
        data: bytes | str | None = self._executable.fingerprint
        return data.encode() if isinstance(data, str) else data or b""

    def outputs(self, inputs: Sequence[Array]) -> list[ArraySpec]:
        """Return the outputs of an execution."""
        del inputs
        return self._results

    def execute(self, inputs: Sequence[Array], outputs: Sequence[Array], options: Any) -> Promise:
        """Start one execution on the queue of its devices."""
        not_donatable = frozenset(options.non_donatable_input_indices)

        def work(sources: list[Any]) -> tuple[Sequence[Any], Any]:
            self._machine.devices.check_up(self.device_ids)
            results = self._executable.execute_sharded(sources, with_tokens=True)
            token = results.consume_token()
            arrays = results.consume_with_handlers(self._handlers)
            # Small programs are over by now; to find that out here saves a thread its work.
            return arrays, None if arrays and arrays[0].is_ready() else token

        return session_arrays.launch(
            work,
            inputs,
            outputs,
            consumed=[inputs[each] for each in self._donated if each not in not_donatable],
            start=self._machine.queues.of(self.device_ids).launch,
        )

    def describe(self, response: Any) -> None:
        """Fill in shardings, layouts, memory kinds, donation and memory use."""
        executable = self._executable
        for name in ("parameter", "output"):
            shardings = getattr(executable, f"get_{name}_shardings")()
            if shardings is not None:
                field = getattr(response, f"{name}_shardings")
                field.SetInParent()
                field.shardings.extend(each.SerializeToString() for each in shardings)
            try:
                layouts = getattr(executable, f"get_{name}_layouts")()
            except Exception as error:
                # XLA has none where there is a token among the arguments or results. All else can be described.
                statuses.of(error).write_to(getattr(response, f"{name}_layouts_error"))
            else:
                described = getattr(response, f"{name}_layouts_list")
                described.SetInParent()
                for layout in layouts:
                    described.layouts.add().minor_to_major.extend(layout._xla_layout().minor_to_major())
        response.output_memory_kinds.memory_kind_lists.add().memory_kinds.extend(self._memory_kinds)
        response.donated_input_indices.SetInParent()
        response.donated_input_indices.donated_input_indices.extend(self._donated)
        stats = executable.get_compiled_memory_stats()
        response.compiled_memory_stats.SetInParent()
        for field in response.compiled_memory_stats.DESCRIPTOR.fields_by_name:
            # Sizes only, and not every jaxlib has all of them.
            if field.endswith("_in_bytes") and hasattr(stats, field):
                setattr(response.compiled_memory_stats, field, getattr(stats, field))
        response.size_of_generated_code_in_bytes = executable.size_of_generated_code_in_bytes()

    def cost_analysis(self) -> dict[str, float]:
        """Return XLA's estimates, by name."""
        return {name: float(value) for name, value in (self._executable.cost_analysis() or {}).items()}

    def text(self) -> str:
        """Return the optimized HLO."""
        return str(self._executable.get_hlo_text())

    def release(self) -> None:
        """Release nothing: XLA's program goes with this object."""

    def _result_shardings(self) -> list[Sharding]:
        from jax._src.lib import xla_client as xc

        shardings, kinds = self._machine.shardings, self._memory_kinds
        if len(self.device_ids) < 2:
            return [shardings.single(self.device_ids[0], each) for each in kinds]
        outputs = self._executable.get_output_shardings()
        if outputs is None:
            replicated = xc.OpSharding()
            replicated.type = xc.OpSharding.Type.REPLICATED
            outputs = [replicated] * len(kinds)
        # XLA has one for the empty tuple that a program without results returns.
        return [
            shardings.partitioned(self.device_ids, each.SerializeToString(), kind)
            for each, kind in zip(outputs[: len(kinds)], kinds, strict=True)
        ]


def _device_ids(options: Any) -> tuple[int, ...]:
    """Return the devices of a program in the order in which an array's shards lie on them: replica by replica."""
    if not options.HasField("device_assignment"):
        return (0,)
    assignment = options.device_assignment
    return tuple(
        computation.replica_device_ids[replica]
        for replica in range(assignment.replica_count)
        for computation in assignment.computation_devices
    )


def _compile_options(requested: Any) -> Any:
    """Return XLA's options, without those that only TPUs have."""
    from jax._src.lib import xla_client as xc

    options = xc.CompileOptions.ParseFromString(requested.SerializeToString())
    overrides = options.env_option_overrides
    if dropped := sorted(name for name, _ in overrides if name.startswith(_TPU_OPTIONS)):
        _log.info("Left out compiler options that only TPUs have: %s", ", ".join(dropped))
        overrides = [each for each in overrides if each[0] not in dropped]
    options.env_option_overrides = [_NO_CHAINS, *overrides]
    return options


def _donated(executable: Any) -> list[int]:
    """Return the arguments whose memory XLA reuses for results.

    They are in the first line of the module's text (its proto copies all constants), as in ``input_output_alias={ {0}:
    (1, {}, may-alias) }``, where 1 is the argument; or, when all arguments are one tuple, ``(0, {1}, may-alias)``.
    """
    (module,) = executable.hlo_modules()
    aliases = _ALIAS.findall(module.to_string().partition("\n")[0])
    return sorted({int(output or argument) for argument, output in aliases})


class OpaqueExecutable:
    """An executable that XLA knows nothing of: a colocated Python function, or a plugin program.

    Attributes:
      kind: What it is, in the plural.
    """

    kind = ""
    name = ""
    device_ids: tuple[int, ...] = ()
    fingerprint = b""

    def outputs(self, inputs: Sequence[Array]) -> list[ArraySpec]:
        """Return the outputs of an execution."""
        raise NotImplementedError

    def execute(self, inputs: Sequence[Array], outputs: Sequence[Array], options: Any) -> Promise:
        """Start one execution."""
        raise NotImplementedError

    def describe(self, response: Any) -> None:
        """Write that there is nothing to describe."""
        nothing = statuses.unimplemented(f"{self.kind} have no layouts or memory statistics")
        nothing.write_to(response.parameter_layouts_error)
        nothing.write_to(response.output_layouts_error)
        nothing.write_to(response.output_memory_kinds.status)
        nothing.write_to(response.compiled_memory_stats_error)
        response.donated_input_indices.SetInParent()

    def cost_analysis(self) -> dict[str, float]:
        """Refuse: there is no cost analysis."""
        raise statuses.unimplemented(f"{self.kind} have no cost analysis")

    def text(self) -> str:
        """Refuse: there is no text."""
        raise statuses.unimplemented(f"{self.kind} have no program text")

    def release(self) -> None:
        """Release nothing: all goes with this object."""
