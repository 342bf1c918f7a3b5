"""The run of the checks, without a cluster."""

from __future__ import annotations

import pytest

from pathways_jupyter.accept import acceptance
from pathways_jupyter.accept.acceptance import Acceptance
from pathways_jupyter.accept.plan import CHECKS, Outcome
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.session import registry
from pathways_jupyter.session.registry import SessionRecord

CONFIG = ConnectConfig(instances={"tpuv6e:2x2": 2})


@pytest.fixture(autouse=True)
def directory():
    with acceptance.private_runtime_directory():
        yield


def test_an_error_of_any_kind_in_a_check_is_a_failure_of_that_check():
    def doctor():
        yield "found"
        raise LookupError("nothing of that name")

    results = []
    left_out = {each.name: "not chosen" for each in CHECKS if each.name != "doctor"}
    Acceptance(CONFIG, left_out, doctor).run(begin=lambda check: None, end=results.append)
    first, *others = results
    assert (first.name, first.outcome, first.lines[0]) == ("doctor", Outcome.FAILED, "found")
    assert "LookupError: nothing of that name" in first.lines[1]
    assert {each.outcome for each in others} == {Outcome.SKIPPED}


def test_the_session_of_a_check_is_its_own_and_not_one_that_a_failed_check_has_left(monkeypatch):
    def write(name: str, kernel_pid: int) -> None:
        paths = [str(registry.runtime_dir() / f"{name}.{kind}") for kind in ("sock", "tunnel", "log")]
        registry.write(SessionRecord(name, 1, kernel_pid, "", "", "jane", 0.0, *paths, {}))

    class Connected:
        """A process that connects; at the same time, a session of another one appears."""

        def __init__(self, config: ConnectConfig) -> None:
            self.process = self
            self.pid = 12

        def ask(self, check):
            write("other", 11)
            write("own", self.pid)
            return iter(())

    monkeypatch.setattr(acceptance, "Kernel", Connected)
    _, record = Acceptance(CONFIG, {})._one_slice()
    assert record.id == "own"
