"""Several notebooks on one service: who gets a slice, and who sees which message."""

import json
import time

import pytest
from waits import wait_until

CONNECT = "--local --tpu tpuv6e:2x2=1"
COMPUTE = "import jax; print('sum', int(jax.numpy.arange(8).sum()), 'chips', len(jax.devices()))"


@pytest.fixture
def notebooks(cluster, open_notebook):
    """Two notebooks that hold a slice each, and a third that has none."""
    three = [open_notebook() for _ in range(3)]
    for notebook in three[:2]:
        notebook.connect(CONNECT)
    three[2].run("%load_ext pathways_jupyter")
    return three


@pytest.mark.thorough
def test_two_kernels_hold_a_slice_each_and_a_third_sees_who_holds_what(notebooks, machine, cluster):
    for notebook in notebooks[:2]:
        assert "sum 28 chips 4" in notebook.run(COMPUTE).text
    # By its kubeconfig, it is a cluster to which connecting adds no slices.
    refused = notebooks[2].run(f"%pathways connect --kubeconfig {cluster} --tpu tpuv6e:2x2=1")
    shown = refused.text + refused.shown
    held = [session["id"] for session in json.loads(machine.cli("sessions", "--json").stdout)]
    assert len(held) == 2
    assert all(session in shown for session in held), shown
    assert "--wait" in shown
    # The log of another notebook's proxy is not this one's.
    none = notebooks[2].run("%pathways logs").shown
    assert "This notebook is not connected." in none
    assert all(f"{session} (" in none for session in held), none
    assert "Signaling to RM" in notebooks[2].run(f"%pathways logs --session {held[0]}").text
    alone = next(each for each in notebooks[:2] if "(your 0)" in each.run("%pathways status").text)
    assert_a_slice_has_two_numbers(alone)


def assert_a_slice_has_two_numbers(notebook):
    """Of a notebook that holds the service's slice 1, which is its own slice 0."""
    label = "1 (your 0)"
    assert f"This session holds: {label}." in notebook.run("%pathways elastic inject slice-down 5").shown
    for number in (0, 1):
        assert notebook.run(f"%pathways elastic heal {number}").status == "ok"
    assert label in notebook.run("%colocated hosts --slices 1").text
    assert f"This session has: {label}." in notebook.run("%colocated hosts --slices 5").shown
    assert "Slice 0 of the service is not one of this session's" in notebook.run("%pathways logs worker 0").text
    assert "is not one of" not in notebook.run("%pathways logs worker").text


@pytest.mark.thorough
def test_a_slice_is_held_since_its_holder_got_it_and_not_since_it_waited(notebooks, machine):
    def since_by_state():
        (service,) = json.loads(machine.cli("slices", "--local", "--json").stdout)
        return {each["waiting"]: each["since"] for each in service["holders"] if each["session"] not in held}

    held = {session["id"] for session in json.loads(machine.cli("sessions", "--json").stdout)}
    first, _, third = notebooks
    waiting = third.begin(f"%pathways connect {CONNECT} --wait 60")
    third.wait_for("holds 1 for")
    wait_until(lambda: since_by_state().get(True))
    freed = time.time()
    assert first.run("%pathways disconnect").status == "ok"
    assert third.finish(waiting).status == "ok"
    assert since_by_state()[False] >= freed


@pytest.mark.soak
def test_a_kernel_that_waits_gets_the_slice_when_it_frees(notebooks):
    first, _, third = notebooks
    waiting = third.begin(f"%pathways connect {CONNECT} --wait 60")
    third.wait_for("holds 1 for")
    assert first.run("%pathways disconnect").status == "ok"
    connected = third.finish(waiting)
    assert connected.status == "ok", connected.shown
    assert "sum 28 chips 4" in third.run(COMPUTE).text
