"""The panel: its buttons do in a real kernel what the magics do."""

import json
import time

import pytest


@pytest.fixture
def panel(cleared_notebook, cluster):
    assert cleared_notebook.run("%load_ext pathways_jupyter").status == "ok"
    cell = cleared_notebook.run("panel = %pathways panel\npanel")
    assert cell.status == "ok", cell.shown
    return cleared_notebook, cell


def press(notebook, button):
    """Clicks as the front end's message does, which runs in the kernel's main thread too."""
    done = notebook.run(f"panel.{button}.click()", timeout=110)
    assert done.status == "ok", done.shown
    return done


def test_a_panel_connects_and_disconnects_and_asks_first(panel):
    notebook, cell = panel
    card, controls = cell.outputs
    assert "not connected" in card["data"]["text/plain"]
    assert "application/vnd.jupyter.widget-view+json" in controls["data"]
    press(notebook, "connect")
    assert "connected" in card["data"]["text/html"]
    assert notebook.run("import jax\nx = jax.numpy.arange(8.0)\nprint(len(jax.devices()))").text.strip() == "4"
    press(notebook, "reconnect")
    said = notebook.run("print(panel.reconnect.description, panel.line.value)").text.strip()
    assert said == "Really reconnect? 1 array (32 bytes) on the TPUs would be lost."
    assert notebook.run("print(x.sum())").text.strip() == "28.0"
    press(notebook, "disconnect")
    assert notebook.run("print(panel.disconnect.description)").text.strip() == "Really disconnect?"
    assert notebook.run("print(jax.devices()[0].platform)").text.strip() == "tpu"
    press(notebook, "disconnect")
    assert notebook.run("print(jax.devices()[0].platform)").text.strip() == "cpu"
    assert "was connected from" in card["data"]["text/html"]
    assert "JAX is as it was before" in notebook.run("print(panel.line.value)").text


def test_a_panel_says_what_line_does_the_same_and_what_went_wrong(panel):
    notebook, cell = panel
    notebook.run("panel.type.value = 'tpuv9:2x2'; panel.count.value = 3")
    assert "connect --local --tpu tpuv9:2x2=3" in notebook.run("print(panel.line.value)").text
    press(notebook, "connect")
    assert "tpuv9" in cell.outputs[0]["data"]["text/plain"]
    assert notebook.run("print(panel.connect.disabled)").text.strip() == "False"


@pytest.mark.thorough
@pytest.mark.timeout(240)
def test_keep_is_there_while_a_session_is_about_to_be_suspended_and_keeps_it(panel, machine):
    notebook, _ = panel
    notebook.connect("--local --tpu tpuv6e:2x2=1 --suspend-after 60")
    notebook.run("panel = %pathways panel\npanel")
    hidden = "print(panel.keep.layout.display)"
    assert notebook.run(hidden).text.strip() == "none"
    # As a front end asks: without a cell, which would keep the session.
    ident = notebook.run("print(panel.keep.comm.comm_id)").text.strip()
    seen = len(notebook.seen)
    notebook.wait_for("suspends at", since=seen)
    (session,) = json.loads(machine.cli("sessions", "--json").stdout)
    assert session["suspends_at"] > time.time() - 1, session["state"]
    assert session["suspend_after"] == 60
    assert "suspends in" in machine.cli("sessions").stdout
    click = {"comm_id": ident, "data": {"method": "custom", "content": {"event": "click"}}}
    notebook.client.shell_channel.send(notebook.client.session.msg("comm_msg", click))
    notebook.wait_for("In use again.", since=seen)
    (session,) = json.loads(machine.cli("sessions", "--json").stdout)
    assert (session["state"], session["suspends_at"]) == ("connected", 0)
    assert notebook.run(hidden).text.strip() == "none"
    notebook.wait_for("suspends at", since=len(notebook.seen))
    # A cell keeps it too, from its beginning on.
    assert "keeps them" in notebook.run("%pathways events").text
    (session,) = json.loads(machine.cli("sessions", "--json").stdout)
    assert session["suspends_at"] == 0


def test_saved_without_its_kernel_a_panel_is_still_a_card(panel):
    _, cell = panel
    assert set(cell.outputs[0]["data"]) == {"text/plain", "text/html"}
    assert "run %pathways panel again" in cell.outputs[1]["data"]["text/html"]
