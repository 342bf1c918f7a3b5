"""Selection of checks."""

from pathways_jupyter.accept.plan import CHECKS, choose


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
