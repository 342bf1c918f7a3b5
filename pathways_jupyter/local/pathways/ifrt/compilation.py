"""Compiles a program with this process's XLA, and moves compiled programs between processes with the same devices."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError

from pathways_jupyter.local.pathways.ifrt import messages, statuses
from pathways_jupyter.local.pathways.ifrt.devices import Devices
from pathways_jupyter.local.pathways.ifrt.stablehlo import Parameter, read_program

_log = logging.getLogger(__name__)

_TPU_OPTIONS = ("xla_tpu_", "xla_jf_", "xla_sc_", "xla_mosaic_", "megascale_")
"""How options begin that only a TPU's compiler has. They tune and change no result, so that a CPU can do without."""

_LAPACK = b"lapack_"
"""How the custom calls begin that are LAPACK's functions."""


@dataclass(frozen=True)
class Compiled:
    """What is known of a compiled program, beside XLA's own object.

    Attributes:
      parameters: What each argument must be.
      results: Element type and global shape of each result.
      donated: Indices of the arguments whose memory becomes a result's.
      device_ids: The devices in the order in which an array's shards lie on them: replica by replica.
      portable: Whether it runs on whatever single device its arguments are on.
    """

    name: str
    parameters: tuple[Parameter, ...]
    results: tuple[tuple[int, tuple[int, ...]], ...]
    donated: tuple[int, ...]
    device_ids: tuple[int, ...]
    portable: bool


def compile_program(artifact: bytes, options: bytes, devices: Devices) -> tuple[Compiled, Any]:
    """Compiles; this takes as long as it takes.

    Args:
      artifact: A StableHLO portable artifact.
      options: An encoded XlaCompileOptionsProto.

    Returns:
      The program, and XLA's executable of it.

    Raises:
      StatusError: The program or the options cannot be used here.
      Exception: Whatever else XLA has against the program.
    """
    program = read_program(artifact)
    try:
        wanted = messages.XlaCompileOptions.FromString(options).compile_options
    except DecodeError as error:
        raise statuses.invalid(f"these are no compile options: {error}") from error
    device_ids = _assigned(wanted, devices)
    executable = devices.client.compile_and_load(
        program.code, _places(devices, device_ids), _options(wanted.SerializeToString())
    )
    compiled = Compiled(
        name=program.name,
        parameters=program.parameters,
        results=program.results,
        donated=_reused(executable, program.donated),
        device_ids=device_ids,
        portable=wanted.compile_portable_executable,
    )
    return compiled, executable


def load(compiled: Compiled, code: bytes, devices: Devices) -> Any:
    """XLA's executable, from what another process has serialized.

    Raises:
      Exception: What XLA raises for code that it cannot load.
    """
    if _LAPACK in code:
        ready_lapack()
    return devices.client.deserialize_executable(code, _places(devices, compiled.device_ids))


def ready_lapack() -> None:
    """Makes LAPACK usable: programs reach it through pointers, which are empty until this was called.

    It costs an import of SciPy, so it is for programs that need it.
    """
    from jaxlib import lapack

    lapack._lapack.initialize()


def _places(devices: Devices, device_ids: Collection[int]) -> Any:
    from jax._src.lib import xla_client as xc

    return xc.DeviceList(tuple(devices.jax_devices[each] for each in device_ids))


def _assigned(wanted: Any, devices: Devices) -> tuple[int, ...]:
    """The devices that the options assign.

    Raises:
      StatusError: The assignment contradicts itself, which XLA would not survive, or names devices that do not exist.
    """
    build = wanted.executable_build_options
    if not build.HasField("device_assignment"):
        return (0,)
    assignment = build.device_assignment
    computations = [tuple(each.replica_device_ids) for each in assignment.computation_devices]
    shape = (assignment.replica_count, assignment.computation_count)
    if len(computations) != shape[1] or any(len(each) != shape[0] for each in computations):
        raise statuses.invalid(f"a device assignment does not have the {shape[0]}x{shape[1]} devices that it says")
    if shape != (build.num_replicas, build.num_partitions):
        raise statuses.invalid(
            f"a program of {build.num_replicas} replicas and {build.num_partitions} partitions has a device assignment"
            f" of {shape[0]}x{shape[1]}"
        )
    device_ids = tuple(computation[replica] for replica in range(shape[0]) for computation in computations)
    devices.check_known(device_ids)
    if len(set(device_ids)) != len(device_ids) or not device_ids:
        raise statuses.invalid("a device assignment must name at least one device, and none twice")
    return device_ids


def _options(encoded: bytes) -> Any:
    """XLA's compile options, with every field that it knows, but for the options of a TPU's compiler."""
    from jax._src.lib import xla_client as xc

    options = xc.CompileOptions.ParseFromString(encoded)
    overrides = options.env_option_overrides
    dropped = sorted(name for name, _ in overrides if name.startswith(_TPU_OPTIONS))
    if dropped:
        _log.info("Left out compiler options that only TPUs have: %s", ", ".join(dropped))
        options.env_option_overrides = [each for each in overrides if each[0] not in dropped]
    return options


def _reused(executable: Any, offered: Collection[int]) -> tuple[int, ...]:
    """The arguments whose memory XLA reuses, which are some of those that were offered to it.

    Only a module's text shows it: in its first line, as ``input_output_alias={ {0}: (1, {}, may-alias) }``, where 1
    is the argument; or, when all arguments are one tuple, ``(0, {1}, may-alias)``.
    """
    if not offered:
        return ()
    (module,) = executable.hlo_modules()
    head = module.to_string().partition("\n")[0]
    return tuple(sorted({int(place or argument) for argument, place in _ALIAS.findall(head)}))


_ALIAS = re.compile(r"\((\d+), \{(\d*)\}, (?:may|must)-alias\)")
