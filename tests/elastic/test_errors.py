"""Errors that a run survives, and arguments that it refuses before it has changed anything."""

import jax
import pytest

from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.elastic import errors
from pathways_jupyter.elastic.errors import ElasticRetryLimit, is_proxy_gone, is_slice_down

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


def test_a_limit_of_attempts_counts_the_first_one():
    limit = ElasticRetryLimit(2)
    assert limit(1, ValueError())
    assert not limit(2, ValueError())


@pytest.mark.parametrize(
    ("refused", "says"),
    [
        (lambda: ElasticRetryLimit(0), "max_attempts must be a whole number of at least 1, not 0"),
        (lambda: errors.check_whole("steps", True, at_least=0), "not True"),
        (lambda: errors.check_seconds("timeout", "5"), "a number of seconds, at least 0, not '5'"),
        (lambda: errors.check_seconds("timeout", float("nan")), "not nan"),
        (lambda: errors.check_slices("minimum_slices", 3, 1), "minimum_slices is 3, but there is 1 slice in all"),
    ],
)
def test_a_refused_argument_is_named_with_what_it_may_be(refused, says):
    with pytest.raises(ConfigError, match=says) as raised:
        refused()
    assert isinstance(raised.value, ValueError)
