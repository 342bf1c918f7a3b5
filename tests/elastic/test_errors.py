"""Errors that a run survives, and arguments that it refuses before it has changed anything."""

import jax
import pytest

from pathways_jupyter.elastic.errors import is_proxy_gone, is_slice_down

Lost = jax.errors.JaxRuntimeError


@pytest.mark.parametrize(
    ("error", "slice_is_down", "proxy_is_gone"),
    [
        (Lost("DATA_LOSS: slice 1 is gone"), True, False),
        (Lost("UNAVAILABLE: connection closed"), False, True),
        # The proxy says so: perhaps a moment before it notices that the worker beside it is gone too.
        (Lost("UNAVAILABLE: the sidecar of host 1 is gone: its process ended"), True, False),
        (Lost("INVALID_ARGUMENT: shapes differ"), False, False),
        # The program's own, whatever it says.
        (RuntimeError("DATA_LOSS UNAVAILABLE"), False, False),
    ],
)
def test_only_jaxs_own_errors_count_as_losses(error, slice_is_down, proxy_is_gone):
    assert is_slice_down(error) == slice_is_down
    assert is_proxy_gone(error) == proxy_is_gone
