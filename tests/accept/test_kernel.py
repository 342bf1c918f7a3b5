"""The process that runs checks: it fails, ends or hangs, and that is a failed check."""

import contextlib
import dataclasses

import pytest

from pathways_jupyter.accept.kernel_process import Kernel
from pathways_jupyter.accept.plan import CONNECT, DISCONNECT, Broken, Skipped
from pathways_jupyter.base.config import ConnectConfig


@pytest.fixture
def kernel(tmp_path):
    nowhere = ConnectConfig(instances={"tpuv6e:2x2": 1}, kubeconfig=str(tmp_path / "none"), timeout=60.0)
    with contextlib.closing(Kernel(nowhere)) as made:
        yield made
    assert made.process.poll() is not None


def test_an_error_of_the_package_is_a_failure_with_its_hint(kernel):
    with pytest.raises(Broken, match=r"none"):
        list(kernel.ask(CONNECT))
    with pytest.raises(Skipped, match="there is no session"):
        list(kernel.ask(DISCONNECT))


def test_a_process_that_ends_is_a_failure_and_what_comes_after_is_skipped(kernel):
    kernel.process.kill()
    with pytest.raises(Broken, match="exit code -9"):
        list(kernel.ask(DISCONNECT))
    with pytest.raises(Skipped, match="ended in disconnect"):
        list(kernel.ask(CONNECT))


def test_a_check_that_does_not_end_is_a_failure_and_its_process_is_killed(kernel):
    with pytest.raises(Broken, match="did not end within 0 s"):
        list(kernel.ask(dataclasses.replace(DISCONNECT, seconds=0.0)))
    assert kernel.process.poll() == -9
    with pytest.raises(Skipped, match="did not end"):
        list(kernel.ask(CONNECT))


@pytest.mark.parametrize("begun", [b"", b'{"check": "conn'], ids=["between lines", "in the middle of a line"])
def test_it_ends_with_the_process_that_asks(kernel, begun):
    kernel.process.stdin.write(begun)
    kernel.process.stdin.close()
    assert kernel.process.wait(60) == 1
