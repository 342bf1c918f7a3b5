"""Whatever a client sends to be compiled or run, the server goes on serving, and so does that client's session."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from pathways_jupyter.local.pathways.ifrt import messages

_DEVICES = 8
_VALUES = np.arange(8, dtype=np.float32)

_TARGETS = (
    # Those that XLA or JAX give a meaning of their own.
    *("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement", "LayoutConstraint"),
    *("InspectSharding", "CustomSPMDPartitioning", "tpu_custom_call", "LuDecomposition", "AllocateBuffer", "TopK"),
    *(
        "MoveToHost",
        "MoveToDevice",
        "PartialReduce",
        "ApproxTopK",
        "shard_barrier_from",
        "shard_barrier_to",
        "X64Combine",
    ),
    *(
        "xla.sdy.FuncResultSharding",
        "xla.sdy.GlobalToLocalShape",
        "xla.sdy.LocalToGlobalShape",
        "mhlo.topk",
        "AsyncStart",
    ),
    *("xla_python_cpu_callback", "xla_ffi_python_cpu_callback", "xla_ffi_partitioned_python_cpu_callback"),
    *("xla_buffer_python_cpu_callback", "dce_sink", "tridiagonal_solve_perturbed_ffi", "no_such_call", ""),
    *(f"lapack_{kind}{name}" for kind in "sdcz" for name in ("getrf_ffi", "geqrf_ffi", "potrf_ffi", "gesdd", "trsm")),
)


@cache
def _artifact(body: str) -> bytes:
    """The portable artifact of a function of one ``tensor<8xf32>``, split over all devices."""
    from jax._src.interpreters import mlir
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    text = f"""
        module @hostile attributes {{mhlo.num_partitions = {_DEVICES} : i32, mhlo.num_replicas = 1 : i32}} {{
          func.func public @main(%x: tensor<8xf32> {{mhlo.sharding = "{{devices=[{_DEVICES}]<=[{_DEVICES}]}}"}})
              -> tensor<8xf32> {{
            {body}
          }}
        }}
    """
    with mlir.make_ir_context():
        ir.Module.parse(text)
        return bytes(stablehlo.serialize_portable_artifact_str(text, stablehlo.get_current_version()))


@cache
def _options(devices: int = _DEVICES) -> bytes:
    from jax._src.lib import xla_client as xc

    options = xc.CompileOptions()
    build = options.executable_build_options
    options.num_replicas = build.num_replicas = 1
    options.num_partitions = build.num_partitions = devices
    build.use_spmd_partitioning = True
    build.device_assignment = xc.DeviceAssignment.create(np.arange(devices).reshape(1, devices))
    encoded: bytes = options.SerializeAsString()
    return encoded


def _honest(rng: random.Random) -> tuple[bytes, bytes]:
    del rng
    return _artifact("%y = stablehlo.sine %x : tensor<8xf32> return %y : tensor<8xf32>"), _options()


def _broken_bytes(data: bytes, rng: random.Random) -> bytes:
    broken = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8, 64])):
        place = rng.randrange(len(broken))
        match rng.randrange(4):
            case 0:
                broken[place] = rng.randrange(256)
            case 1:
                broken[place] ^= 1 << rng.randrange(8)
            case 2:
                del broken[place : place + rng.choice([1, 2, 16])]
            case 3:
                broken[place:place] = rng.randbytes(rng.choice([1, 4]))
        if not broken:
            break
    return bytes(broken)


def _broken_program(rng: random.Random) -> tuple[bytes, bytes]:
    program, options = _honest(rng)
    return _broken_bytes(program, rng), options


def _broken_options(rng: random.Random) -> tuple[bytes, bytes]:
    program, options = _honest(rng)
    return program, _broken_bytes(options, rng)


def _contradicting_options(rng: random.Random) -> tuple[bytes, bytes]:
    """Options that are well formed, and do not fit each other or the program."""
    program, options = _honest(rng)
    message = messages.XlaCompileOptions().compile_options
    message.MergeFromString(options)
    build = message.executable_build_options
    odd = (-1, 0, 1, 2, 7, 8, 9, 1 << 20, 1 << 40)
    for _ in range(rng.choice([1, 2, 4])):
        match rng.randrange(6):
            case 0:
                build.num_replicas = rng.choice(odd)
            case 1:
                build.num_partitions = rng.choice(odd)
            case 2:
                build.use_spmd_partitioning = not build.use_spmd_partitioning
            case 3:
                build.device_assignment.replica_count = rng.choice([-1, 0, 2, 8, 1 << 20])
            case 4:
                del build.device_assignment.computation_devices[rng.randrange(8) :]
            case 5:
                for each in build.device_assignment.computation_devices:
                    each.replica_device_ids[:] = [rng.choice([-1, 0, 7, 8, 15, 16, 1 << 40])]
    message.compile_portable_executable = rng.random() < 0.3
    return program, message.SerializeToString()


def _strange_custom_call(rng: random.Random) -> tuple[bytes, bytes]:
    operands = rng.choice([0, 1, 1, 1, 2, 5])
    address = str(rng.getrandbits(47))
    attributes = [f"api_version = {rng.choice([0, 1, 2, 3, 4])} : i32"]
    if attributes[0].startswith("api_version = 4"):
        attributes.append(f"backend_config = {{index = {address} : ui64, callback = {address} : i64}}")
    else:
        attributes.append(f'backend_config = "{rng.choice([address, "", "{}", "x" * 100])}"')
    if rng.random() < 0.5:
        attributes.append("has_side_effect = true")
    if rng.random() < 0.5:
        attributes.append(f'mhlo.sharding = "{{devices=[{_DEVICES}]<=[{_DEVICES}]}}"')
    kinds = ", ".join(["tensor<8xf32>"] * operands)
    return (
        _artifact(
            f'%y = stablehlo.custom_call @"{rng.choice(_TARGETS)}"({", ".join(["%x"] * operands)})'
            f" {{{', '.join(attributes)}}} : ({kinds}) -> tensor<8xf32> return %y : tensor<8xf32>"
        ),
        _options(),
    )


_KINDS = (_broken_program, _broken_options, _contradicting_options, _strange_custom_call)


@pytest.mark.parametrize("make", _KINDS, ids=lambda make: make.__name__.strip("_"))
def test_a_program_that_makes_no_sense_ends_nothing_but_itself(raw, service, make):
    _throw(raw, service, make, random.Random(1), rounds=20)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("make", _KINDS, ids=lambda make: make.__name__.strip("_"))
def test_none_of_many_does(raw, service, make):
    _throw(raw, service, make, random.Random(2), rounds=500)


_UNFIT = {
    "too few": lambda session: [],
    "too many": lambda session: [_whole(session), _whole(session)],
    "another type": lambda session: [_whole(session, _VALUES.astype(np.int32))],
    "another shape": lambda session: [_whole(session, np.arange(16, dtype=np.float32))],
    "not split": lambda session: [session.make_array(_VALUES)[0]],
    "another order of devices": lambda session: [_whole(session, devices=range(_DEVICES - 1, -1, -1))],
    "other memory": lambda session: [_whole(session, memory_kind="pinned_host")],
}


@pytest.mark.parametrize("make", _UNFIT.values(), ids=_UNFIT)
def test_arguments_that_do_not_fit_are_refused_before_xla_sees_them(raw, make):
    session = raw()
    program, options = _honest(random.Random(0))
    handle = session.call("compile", lambda message: _fill(message, program, options)).loaded_executable_handle
    with pytest.raises(Exception, match=r"INVALID_ARGUMENT: (argument 0 of hostile must be|hostile takes 1 arguments)"):
        session.call("loaded_executable_execute", loaded_executable_handle=handle, args_handles=make(session))
    assert _run(session, program, options) == "ran"


def test_a_deleted_program_is_deleted_and_its_handle_stays(raw):
    session = raw()
    code, options = _honest(random.Random(0))
    program = session.call("compile", lambda message: _fill(message, code, options)).loaded_executable_handle
    assert not session.call("loaded_executable_is_deleted", loaded_executable_handle=program).is_deleted
    future = session.call("loaded_executable_delete", loaded_executable_handle=program).future_handle
    session.call("check_future", future_handle=future)
    assert session.call("loaded_executable_is_deleted", loaded_executable_handle=program).is_deleted
    with pytest.raises(Exception, match="INVALID_ARGUMENT: the program has been deleted"):
        session.call("loaded_executable_execute", loaded_executable_handle=program)
    session.call("loaded_executable_destruct", loaded_executable_handle=program)
    with pytest.raises(Exception, match="NOT_FOUND"):
        session.call("loaded_executable_is_deleted", loaded_executable_handle=program)


def _throw(raw, service, make: Callable, rng: random.Random, rounds: int) -> None:
    """Compiles programs, and runs those that compile; an array made before must live through all of it."""
    keeper = raw()
    kept, _ = keeper.make_array(_VALUES)
    session = raw()
    for _ in range(rounds):
        try:
            _run(session, *make(rng))
        except TimeoutError:
            # Some bytes let MLIR read for ever. The end of the session ends its compiler.
            session.close()
            session = raw()
    assert service.programs[-1].process.poll() is None
    np.testing.assert_array_equal(keeper.read(kept, np.float32), _VALUES)
    for each in (keeper, session):
        assert _run(each, *_honest(rng)) == "ran"


def _run(session, program: bytes, options: bytes) -> str:
    """Compiles and runs a program; returns ``ran``, or what went wrong."""
    answer = session.answer(session.send("compile", lambda message: _fill(message, program, options)), deadline=30)
    status = answer.response_metadata.status
    if status.code:
        return f"{status.code}: {status.message}"
    handle = answer.compile_response.loaded_executable_handle
    session.answer(session.send("loaded_executable_metadata", loaded_executable_handle=handle))
    arguments = [_whole(session)]
    answer = session.answer(
        session.send("loaded_executable_execute", loaded_executable_handle=handle, args_handles=arguments)
    )
    if status := answer.response_metadata.status.code:
        return f"not started: {status}"
    results = [each.array_handle for each in answer.loaded_executable_execute_response.outputs]
    status = session.answer(session.send("check_value_ready", value_handles=results)).response_metadata.status
    session.call("loaded_executable_destruct", loaded_executable_handle=handle)
    return "ran" if not status.code else f"failed: {status.code}"


def _fill(message, program: bytes, options: bytes) -> None:
    message.program.type_name = "xla::ifrt::XlaProgram"
    message.program.data = program
    message.compile_options.type_name = "xla::ifrt::XlaCompileOptions"
    # Field 1, length-delimited; by hand, because encoding it once more would repair what is broken inside.
    message.compile_options.data = b"\x0a" + _varint(len(options)) + options


def _whole(session, values=_VALUES, devices=range(_DEVICES), memory_kind: str | None = None) -> int:
    """The handle of an array that is split over the devices."""
    from jax._src.lib import xla_client as xc

    parts = [
        session.make_array(part, device=each)[0] for each, part in zip(devices, np.split(values, _DEVICES), strict=True)
    ]
    partitioning = xc.OpSharding()
    partitioning.type = xc.OpSharding.Type.OTHER
    partitioning.tile_assignment_dimensions = [_DEVICES]
    partitioning.tile_assignment_devices = list(range(_DEVICES))
    sharding = messages.HloSharding(xla_op_sharding=partitioning.SerializeToString())
    sharding.devices.device_ids.extend(devices)

    def fill(message) -> None:
        message.shape.dims.extend(values.shape)
        message.sharding.serialized_sharding.type_name = "xla::ifrt::HloSharding"
        message.sharding.serialized_sharding.data = sharding.SerializeToString()

    joined = session.handle()
    session.call(
        "assemble_array_from_single_device_arrays", fill, single_device_array_handles=parts, result_handle=joined
    )
    if memory_kind is None:
        return joined
    moved = session.handle()
    session.call("copy_arrays", array_handles=[joined], memory_kind=memory_kind, result_handles=[moved])
    return moved


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])
