"""Reads StableHLO programs as clients send them: their name, results and donated arguments.

Programs were lowered for TPUs. Nearly all of that means the same on a CPU; the few custom calls that only a TPU knows
are replaced by JAX's own lowering of the same function for CPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pathways_jupyter.local.pathways.ifrt import dtypes, statuses

_CHIP_KERNEL = "tpu_custom_call"
_DONATION_ATTRIBUTES = frozenset({"tf.aliasing_output", "jax.buffer_donor"})


@dataclass(frozen=True)
class Program:
    """A program that is ready to be compiled.

    Attributes:
      code: What `compile_and_load` takes: the client's own bytes, or MLIR's text when something had to be replaced.
      results: Element type and global shape of each result.
      donated: Indices of the arguments whose memory the program may reuse.
    """

    name: str
    code: bytes | str
    results: tuple[tuple[int, tuple[int, ...]], ...]
    donated: tuple[int, ...]


def read_program(artifact: bytes) -> Program:
    """Reads a StableHLO portable artifact.

    Raises:
      StatusError: The program needs a real TPU, or a result has an element type that does not exist here.
      Exception: What MLIR raises for bytes that are no such artifact.
    """
    from jax._src.interpreters import mlir
    from jaxlib.mlir import ir

    with mlir.make_ir_context() as context:
        module = _read(artifact, context)
        replaced = _replace_tpu_calls(module)
        _ready_lapack(module)
        main = next(each for each in _functions(module) if _name(each) == "main")
        signature = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
        return Program(
            name=_name(module.operation, "main"),
            code=str(module) if replaced else artifact,
            results=tuple(_result(each) for each in signature.results),
            donated=_donated(main),
        )


def _read(artifact: bytes, context: Any) -> Any:
    from jax._src.lib import xla_client as xc
    from jaxlib.mlir import ir

    try:
        return xc._xla.mlir.deserialize_portable_artifact(artifact, context)
    except TypeError:
        # Before jaxlib 0.10 it takes no context, and gives the module's text.
        return ir.Module.parse(xc._xla.mlir.deserialize_portable_artifact(artifact))


def _ready_lapack(module: Any) -> None:
    """Programs reach LAPACK through pointers that are empty until somebody fills them.

    That costs an import of SciPy, so it is done for the first program that needs it.
    """
    if any(_target(each).startswith("lapack_") for each in _walk(module.operation)):
        from jaxlib import lapack

        lapack._lapack.initialize()


def _result(kind: Any) -> tuple[int, tuple[int, ...]]:
    from jaxlib.mlir import ir

    if not isinstance(kind, ir.RankedTensorType):
        return dtypes.TOKEN, ()
    return dtypes.from_mlir(str(kind.element_type)), tuple(kind.shape)


def _donated(main: Any) -> tuple[int, ...]:
    if "arg_attrs" not in main.attributes:
        return ()
    return tuple(
        index
        for index, attributes in enumerate(main.attributes["arg_attrs"])
        if any(getattr(each, "name", each) in _DONATION_ATTRIBUTES for each in attributes)
    )


def _functions(module: Any) -> list[Any]:
    return [each for each in module.body.operations if each.operation.name == "func.func"]


def _name(operation: Any, default: str = "") -> str:
    from jaxlib.mlir import ir

    if "sym_name" not in operation.attributes:
        return default
    return str(ir.StringAttr(operation.attributes["sym_name"]).value)


def _cpu_lowerings() -> dict[str, Callable[[Any], Any]]:
    """For each custom call that only a TPU knows, the JAX function that it stands for."""
    import jax

    return {"LuDecomposition": jax.lax.linalg.lu}


def _replace_tpu_calls(module: Any) -> bool:
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import func

    lowerings = _cpu_lowerings()
    targets = [(each, target) for each in _walk(module.operation) if (target := _target(each))]
    if any(target == _CHIP_KERNEL for _, target in targets):
        raise statuses.unimplemented("the program has TPU kernels (Pallas), which cannot run on this cluster's CPUs")
    calls = [each for each, target in targets if target in lowerings]
    for number, call in enumerate(calls):
        operand = call.operands[0].type
        entry = _lowered_into(module, lowerings[_target(call)], operand, f"cpu_{_target(call)}_{number}")
        with ir.InsertionPoint(call), call.location:
            new = func.CallOp(
                [each.type for each in call.results], ir.FlatSymbolRefAttr.get(entry), list(call.operands)
            )
        for old, result in zip(call.results, new.results, strict=True):
            old.replace_all_uses_with(result)
        call.erase()
    return bool(calls)


def _lowered_into(module: Any, function: Callable[[Any], Any], operand: Any, name: str) -> str:
    """Adds JAX's lowering of `function` for one argument to `module`, and returns the name to call it by."""
    import jax
    from jaxlib.mlir import ir

    argument = jax.ShapeDtypeStruct(operand.shape, dtypes.to_numpy(dtypes.from_mlir(str(operand.element_type))))
    lowered = jax.jit(function).trace(argument).lower(lowering_platforms=("cpu",))
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
    return name


def _target(operation: Any) -> str:
    from jaxlib.mlir import ir

    if operation.name != "stablehlo.custom_call":
        return ""
    return str(ir.StringAttr(operation.attributes["call_target_name"]).value)


def _walk(operation: Any) -> Iterator[Any]:
    for region in operation.regions:
        for block in region:
            for inner in block.operations:
                yield inner.operation
                yield from _walk(inner.operation)
