"""Selection of checks."""

import pytest

from pathways_jupyter.accept.plan import CHECKS, NOT_CHOSEN, choose
from pathways_jupyter.base.errors import ConfigError


def running(only=(), skip=(), *, destructive=False):
    left_out = choose(only, skip, destructive=destructive)
    return [each.name for each in CHECKS if each.name not in left_out]


def test_all_run_but_those_that_take_a_slice_down():
    assert {each.name for each in CHECKS} - set(running()) == {"slice-lost", "elastic"}
    assert len(running(destructive=True)) == len(CHECKS)


def test_a_check_that_needs_a_session_brings_connecting_and_disconnecting():
    assert running(["transfer"]) == ["connect", "transfer", "disconnect"]
    assert running(["lease"]) == ["lease"]
    assert "connect" in running(skip=["connect"])


def test_a_check_that_is_skipped_is_not_chosen():
    assert choose((), ["lease"], destructive=True) == {"lease": NOT_CHOSEN}


@pytest.mark.parametrize(("only", "skip"), [(["compote"], []), ([], ["compote"]), (["elastic"], [])])
def test_what_cannot_be_chosen_is_refused(only, skip):
    with pytest.raises(ConfigError):
        choose(only, skip, destructive=False)
