"""Compiles a client's program with this process's XLA."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import Any

from pathways_jupyter.local.pathways.ifrt import messages
from pathways_jupyter.local.pathways.ifrt.devices import Devices
from pathways_jupyter.local.pathways.ifrt.stablehlo import read_program

_log = logging.getLogger(__name__)

_TPU_OPTIONS = ("xla_tpu_", "xla_jf_", "xla_sc_", "xla_mosaic_", "megascale_")
"""How options begin that only a TPU's compiler has. They tune and change no result, so that a CPU can do without."""

_ALIAS = re.compile(r"\((\d+), \{(\d*)\}, (?:may|must)-alias\)")


@dataclass(frozen=True)
class Compiled:
    """A compiled program.

    Attributes:
      results: Element type and global shape of each result.
      donated: Indices of the arguments whose memory becomes a result's.
      device_ids: The devices in the order in which an array's shards lie on them: replica by replica.
      portable: Whether it runs on whatever single device its arguments are on.
      executable: XLA's own object for it.
    """

    name: str
    results: tuple[tuple[int, tuple[int, ...]], ...]
    donated: tuple[int, ...]
    device_ids: tuple[int, ...]
    portable: bool
    executable: Any


def compile_program(artifact: bytes, options: bytes, devices: Devices) -> Compiled:
    """Compile; this takes as long as it takes.

    Args:
      artifact: A StableHLO portable artifact.
      options: An encoded XlaCompileOptionsProto.

    Raises:
      StatusError: The program or the options cannot be used here.
      Exception: Whatever else XLA has against the program.
    """
    from jax._src.lib import xla_client as xc
    from jaxlib import lapack

    program = read_program(artifact)
    if b"lapack_" in artifact:
        # Programs reach LAPACK's functions through pointers, which are empty until then. It imports SciPy.
        lapack._lapack.initialize()
    wanted = messages.XlaCompileOptions.FromString(options).compile_options
    device_ids: tuple[int, ...] = (0,)
    if wanted.executable_build_options.HasField("device_assignment"):
        assignment = wanted.executable_build_options.device_assignment
        device_ids = tuple(
            computation.replica_device_ids[replica]
            for replica in range(assignment.replica_count)
            for computation in assignment.computation_devices
        )
    compile_options = xc.CompileOptions.ParseFromString(wanted.SerializeToString())
    overrides = compile_options.env_option_overrides
    if dropped := sorted(name for name, _ in overrides if name.startswith(_TPU_OPTIONS)):
        _log.info("Left out compiler options that only TPUs have: %s", ", ".join(dropped))
        compile_options.env_option_overrides = [each for each in overrides if each[0] not in dropped]
    places = xc.DeviceList(tuple(devices.jax_devices[each] for each in device_ids))
    executable = devices.client.compile_and_load(program.code, places, compile_options)
    donated: set[int] = set()
    if program.offered:
        # Which of them XLA reuses is only in the first line of the module's text, as in
        # ``input_output_alias={ {0}: (1, {}, may-alias) }``, where 1 is the argument; or, when all arguments are one
        # tuple, ``(0, {1}, may-alias)``.
        (module,) = executable.hlo_modules()
        found = _ALIAS.findall(module.to_string().partition("\n")[0])
        donated = {int(place or argument) for argument, place in found}
    return Compiled(
        name=program.name,
        results=program.results,
        donated=tuple(sorted(donated)),
        device_ids=device_ids,
        portable=wanted.compile_portable_executable,
        executable=executable,
    )
