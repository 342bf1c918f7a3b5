"""Reads StableHLO programs as clients send them: their name, results and donated arguments.

Programs were lowered for TPUs. Nearly all of that means the same on a CPU; what only a TPU knows is replaced by what
JAX or StableHLO themselves have for CPUs. Custom calls that JAX does not make for a TPU are refused. With one that
refers to a Python object of the client XLA would follow a pointer into another process; and those that it has for
CPUs, such as LAPACK's, do not check the sizes that they are given, and write beyond them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pathways_jupyter.local.pathways.ifrt import dtypes, statuses

if TYPE_CHECKING:
    import jax

CALLBACKS_REFUSED = (
    "host callbacks (jax.debug.print, pure_callback, io_callback) cannot be used through a Pathways proxy;"
    " use colocated Python, or, where they are Equinox's or Diffrax's checks, set EQX_ON_ERROR=nan"
)
_PINNED_REFUSED = (
    "pinned buffers (jax.new_ref with pin=True) are for a TPU's own kernels, and do not exist on this cluster's CPUs"
)
_REFUSED = {
    "CreateBuffer": _PINNED_REFUSED,
    "Pin": _PINNED_REFUSED,
    "Unpin": _PINNED_REFUSED,
    "tpu_custom_call": "the program has TPU kernels (Pallas), which cannot run on this cluster's CPUs",
    "ragged_all_to_all": "jax.lax.ragged_all_to_all cannot run on this cluster's CPUs: XLA has it for chips only",
    # Holds the address of a function in the client's memory.
    "InspectSharding": (
        "jax.debug.inspect_array_sharding and visualize_array_sharding cannot look into a jitted program through a"
        " Pathways proxy; return the array from the program, and look at its .sharding"
    ),
    # Names an object in the client's memory, which holds the functions that partition the call.
    "CustomSPMDPartitioning": (
        "custom_partitioning cannot be used through a Pathways proxy, because its rules are Python functions of this"
        " process; use jax.shard_map"
    ),
    # Index into, or address of, Python functions of the process that lowered the program.
    "xla_python_cpu_callback": CALLBACKS_REFUSED,
    "xla_ffi_python_cpu_callback": CALLBACKS_REFUSED,
    "xla_ffi_partitioned_python_cpu_callback": CALLBACKS_REFUSED,
    "xla_buffer_python_cpu_callback": CALLBACKS_REFUSED,
}
"""Custom calls that JAX makes, but that cannot be compiled here, and why."""
_ASYNCHRONOUS = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")
_KNOWN = frozenset(
    [
        *(f"{collective}-{half}" for collective in _ASYNCHRONOUS for half in ("start", "done")),
        "AllocateBuffer",
        "ApproxTopK",
        "Eigh",
        "LayoutConstraint",
        "LuDecomposition",
        "ProductOfElementaryHouseholderReflectors",
        "Qr",
        "SPMDFullToShardShape",
        "SPMDShardToFullShape",
        "Sharding",
        "annotate_device_placement",
        "dce_sink",
        "shape_assertion",
    ]
)
_KNOWN_FAMILIES = ("chlo.", "mhlo.", "stablehlo.", "xla.sdy.")
"""Prefixes of the names of operations that MLIR's dialects write as custom calls."""
_DECOMPOSED = frozenset({"chlo.ragged_dot"})
"""Composites for which XLA has an instruction that its CPU back end does not know; they bring their own definition."""
_DONATION_ATTRIBUTES = frozenset({"tf.aliasing_output", "jax.buffer_donor"})


@dataclass(frozen=True)
class StablehloProgram:
    """A program that is ready to be compiled.

    Attributes:
      code: What `compile_and_load` takes: the client's own bytes, or MLIR's text when something had to be replaced.
      results: Element type and global shape of each result.
      offered: Whether the client offers the memory of arguments for results.
    """

    name: str
    code: bytes | str
    results: tuple[tuple[int, tuple[int, ...]], ...]
    offered: bool


def read_program(artifact: bytes) -> StablehloProgram:
    """Read a StableHLO portable artifact.

    Raises:
      IfrtStatusError: The program needs a real TPU or its client, or a result has an element type that does not exist
        here.
      Exception: What MLIR raises for bytes that are no such artifact.
    """
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client as xc
    from jaxlib.mlir import ir

    with mlir.make_ir_context() as context:
        module = xc._xla.mlir.deserialize_portable_artifact(artifact, context)
        replaced = 0
        # A list, because replacing changes what is walked.
        for operation in list(_walk(module.operation)):
            if operation.name == "stablehlo.custom_call":
                target = _text(operation, "call_target_name")
                if target in _REFUSED:
                    raise statuses.unimplemented(_REFUSED[target])
                if target not in _KNOWN and not target.startswith(_KNOWN_FAMILIES):
                    raise statuses.unimplemented(
                        f"the program has a custom call of {target}, which is none that JAX makes for TPUs"
                    )
                function = _function_of(target, operation)
                if function is None:
                    continue
                name = f"cpu_{target}_{replaced}"
                _lower_into(module, function, operation.operands, name)
                _replace_by_call(operation, name)
            elif operation.name == "stablehlo.composite" and _text(operation, "name") in _DECOMPOSED:
                _replace_by_call(operation, operation.attributes["decomposition"].value)
            else:
                continue
            replaced += 1
        main = next(each for each in _functions(module) if _name(each) == "main")
        signature = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
        attributes = list(main.attributes["arg_attrs"]) if "arg_attrs" in main.attributes else []
        return StablehloProgram(
            name=_name(module.operation, "main"),
            # With the locations: the source lines and named scopes of the operations.
            code=module.operation.get_asm(enable_debug_info=True) if replaced else artifact,
            results=tuple(_typed(each) for each in signature.results),
            offered=any(each.name in _DONATION_ATTRIBUTES for given in attributes for each in given),
        )


def _typed(kind: Any) -> tuple[int, tuple[int, ...]]:
    """Return the element type and shape of an MLIR type."""
    from jaxlib.mlir import ir

    if not isinstance(kind, ir.RankedTensorType):
        return dtypes.TOKEN, ()
    return dtypes.from_mlir(str(kind.element_type)), tuple(kind.shape)


def _functions(module: Any) -> list[Any]:
    return [each for each in module.body.operations if each.operation.name == "func.func"]


def _name(operation: Any, default: str = "") -> str:
    return _text(operation, "sym_name") if "sym_name" in operation.attributes else default


def _replace_by_call(operation: Any, function: str) -> None:
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import func

    with ir.InsertionPoint(operation), operation.location:
        kinds = [each.type for each in operation.results]
        new = func.CallOp(kinds, ir.FlatSymbolRefAttr.get(function), list(operation.operands))
    for old, result in zip(operation.results, new.results, strict=True):
        old.replace_all_uses_with(result)
    operation.erase()


def _function_of(target: str, operation: Any) -> Callable[..., Any] | None:
    """Return JAX's function that a custom call stands for, where only a TPU knows the call."""
    import jax

    if target == "AllocateBuffer":
        result = _struct(operation.results[0].type)
        return partial(jax.lax.empty, result.shape, result.dtype)
    return jax.lax.linalg.lu if target == "LuDecomposition" else None


def _struct(kind: Any) -> jax.ShapeDtypeStruct:
    import jax

    return jax.ShapeDtypeStruct(kind.shape, dtypes.to_numpy(dtypes.from_mlir(str(kind.element_type))))


def _lower_into(module: Any, function: Callable[..., Any], operands: Iterable[Any], name: str) -> None:
    """Add JAX's lowering of `function` for CPUs to `module`, for such operands and to be called by `name`."""
    import jax
    from jaxlib.mlir import ir

    lowered = jax.jit(function).trace(*(_struct(each.type) for each in operands)).lower(lowering_platforms=("cpu",))
    addition = ir.Module.parse(str(lowered.compiler_ir("stablehlo")))
    for each in _functions(addition):
        old = _name(each)
        new = name if old == "main" else f"{name}_{old}"
        ir.SymbolTable.replace_all_symbol_uses(old, new, addition.operation)
        ir.SymbolTable.set_symbol_name(each.operation, new)
    for each in _functions(addition):
        each.attributes["sym_visibility"] = ir.StringAttr.get("private")
        each.operation.detach_from_parent()
        module.body.append(each.operation)


def _text(operation: Any, attribute: str) -> str:
    from jaxlib.mlir import ir

    return str(ir.StringAttr(operation.attributes[attribute]).value)


def _walk(operation: Any) -> Iterator[Any]:
    for region in operation.regions:
        for block in region:
            for inner in block.operations:
                yield inner.operation
                yield from _walk(inner.operation)
