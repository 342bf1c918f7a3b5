"""Element types: the protocol's numbers, numpy's dtypes, and MLIR's spelling of the same."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from pathways_jupyter.local.pathways.ifrt import statuses

STRING = 99
"""Strings of any length: such an array has no numpy buffer."""
TOKEN = 17
"""Carries no data; orders effects."""

# The number, numpy's type, and MLIR's name.
_TABLE: tuple[tuple[int, type, str], ...] = (
    (1, np.bool_, "i1"),
    (26, ml_dtypes.int2, "i2"),
    (21, ml_dtypes.int4, "i4"),
    (2, np.int8, "i8"),
    (3, np.int16, "i16"),
    (4, np.int32, "i32"),
    (5, np.int64, "i64"),
    (27, ml_dtypes.uint2, "ui2"),
    (22, ml_dtypes.uint4, "ui4"),
    (6, np.uint8, "ui8"),
    (7, np.uint16, "ui16"),
    (8, np.uint32, "ui32"),
    (9, np.uint64, "ui64"),
    (10, np.float16, "f16"),
    (11, np.float32, "f32"),
    (12, np.float64, "f64"),
    (16, ml_dtypes.bfloat16, "bf16"),
    (15, np.complex64, "complex<f32>"),
    (18, np.complex128, "complex<f64>"),
    (29, ml_dtypes.float8_e3m4, "f8E3M4"),
    (28, ml_dtypes.float8_e4m3, "f8E4M3"),
    (20, ml_dtypes.float8_e4m3fn, "f8E4M3FN"),
    (23, ml_dtypes.float8_e4m3b11fnuz, "f8E4M3B11FNUZ"),
    (25, ml_dtypes.float8_e4m3fnuz, "f8E4M3FNUZ"),
    (19, ml_dtypes.float8_e5m2, "f8E5M2"),
    (24, ml_dtypes.float8_e5m2fnuz, "f8E5M2FNUZ"),
    (31, ml_dtypes.float8_e8m0fnu, "f8E8M0FNU"),
    (30, ml_dtypes.float4_e2m1fn, "f4E2M1FN"),
)

_NUMPY = {kind: np.dtype(dtype) for kind, dtype, _ in _TABLE}
_KIND_OF_MLIR = {name: kind for kind, _, name in _TABLE}


def to_numpy(kind: int) -> np.dtype:
    """Return numpy's dtype of a kind.

    Raises:
      IfrtStatusError: The kind has none (strings, tokens), or is not known.
    """
    dtype = _NUMPY.get(kind)
    if dtype is None:
        raise statuses.unimplemented(f"arrays of element type {kind} are not supported")
    return dtype


def from_mlir(name: str) -> int:
    """Return the kind of an MLIR element type, e.g. ``f32``.

    Raises:
      IfrtStatusError: There is no such element type.
    """
    kind = _KIND_OF_MLIR.get(name)
    if kind is None:
        raise statuses.unimplemented(f"programs with results of element type {name} are not supported")
    return kind
