"""Several notebooks on one service: who gets a slice, and who sees which message."""

import json

import pytest

LOAD = "%load_ext pathways_jupyter"
CONNECT = "%pathways connect --local --tpu tpuv6e:2x2=1"
COMPUTE = "import jax; print('sum', int(jax.numpy.arange(8).sum()), 'chips', len(jax.devices()))"


@pytest.fixture
def notebooks(cluster, open_notebook):
    """Two notebooks that hold a slice each, and a third that has none."""
    three = [open_notebook() for _ in range(3)]
    for notebook in three:
        notebook.run(LOAD)
    for notebook in three[:2]:
        connected = notebook.run(CONNECT)
        assert connected.status == "ok", connected.shown
    return three


def test_two_kernels_hold_a_slice_each_and_a_third_sees_who_holds_what(notebooks, machine):
    for notebook in notebooks[:2]:
        assert "sum 28 chips 4" in notebook.run(COMPUTE).text
    refused = notebooks[2].run(CONNECT)
    shown = refused.text + refused.shown
    held = [session["id"] for session in json.loads(machine.cli("sessions", "--json").stdout)]
    assert len(held) == 2
    assert all(session in shown for session in held), shown
    assert "--wait" in shown


@pytest.mark.soak
def test_a_kernel_that_waits_gets_the_slice_when_it_frees(notebooks):
    first, _, third = notebooks
    waiting = third.begin(CONNECT + " --wait 60")
    third.wait_for("holds 1 for")
    assert first.run("%pathways disconnect").status == "ok"
    connected = third.finish(waiting)
    assert connected.status == "ok", connected.shown
    assert "sum 28 chips 4" in third.run(COMPUTE).text
