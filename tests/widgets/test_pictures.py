"""The sidebar's pictures as cells show them: live in a notebook, still everywhere else."""

import nbformat
import pytest

from pathways_jupyter.render.view import View
from pathways_jupyter.widgets import picture

CONNECT = "%load_ext pathways_jupyter\n%pathways connect --local --tpu tpuv6e:2x2=2"
WAIT = """
import threading
def wait(widget, name, true):
    happened = threading.Event()
    look = lambda change=None: true(getattr(widget, name)) and happened.set()
    widget.observe(look, name)
    look()
    print("seen", happened.wait(60))
"""


@pytest.fixture(scope="module")
def connected(shared_notebook, cluster):
    done = shared_notebook.run(CONNECT, timeout=110)
    assert done.status == "ok", done.shown
    assert shared_notebook.run(WAIT).status == "ok"
    yield shared_notebook
    shared_notebook.run("%pathways disconnect")


def data(cell):
    """What the cell's last output offers, by MIME type."""
    assert cell.status == "ok", cell.shown
    return [each["data"] for each in cell.outputs if "data" in each][-1]


def test_slices_and_events_come_as_widget_and_html_and_text(connected):
    for command, told in (("slices", "ready"), ("events", "Connected")):
        offered = data(connected.run(f"%pathways {command}"))
        assert picture.WIDGET_MIME in offered
        assert told.lower() in offered["text/plain"].lower()
        assert "<" in offered["text/html"]


def test_a_map_draws_both_slices_as_mine_and_goes_on_while_a_cell_runs(connected):
    connected.run("shown = get_ipython().run_line_magic('pathways', 'slices'); display(shown)")
    mine = "lambda rows: len(rows) == 2 and all(row['holder'] and row['holder']['mine'] for row in rows)"
    assert "seen True" in connected.run(f"wait(shown._widget, 'rows', {mine})").text


def test_a_map_shows_both_slices_from_the_beginning(connected):
    shown = connected.run(
        "shown = get_ipython().run_line_magic('pathways', 'slices'); bundle = shown._repr_mimebundle_()\n"
        "print([row['holder']['mine'] for row in shown._widget.rows])"
    )
    assert "[True, True]" in shown.text


def test_a_timeline_tells_what_happens_after_it_was_shown(connected):
    connected.run("shown = get_ipython().run_line_magic('pathways', 'events'); display(shown)")
    connected.run("count = len(shown._widget.rows)")
    connected.run("%pathways reconnect", timeout=110)
    assert "seen True" in connected.run("wait(shown._widget, 'rows', lambda rows: len(rows) > count)").text


def test_outside_of_a_kernel_there_is_no_widget():
    assert not picture.can_show_widgets()
    assert picture.WIDGET_MIME not in picture.bundle(View(None, "text", "<b>html</b>"), None)


def test_a_notebook_on_paper_shows_the_html():
    from nbconvert import HTMLExporter

    offered = {"text/plain": "plain", "text/html": "<b>slice map</b>", picture.WIDGET_MIME: {"model_id": "gone"}}
    output = nbformat.v4.new_output("execute_result", offered, execution_count=1)
    cell = nbformat.v4.new_code_cell("%pathways slices", outputs=[output])
    page, _ = HTMLExporter().from_notebook_node(nbformat.v4.new_notebook(cells=[cell]))
    assert "<b>slice map</b>" in page
