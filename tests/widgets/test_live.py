"""An output that threads draw."""

import threading
from types import SimpleNamespace

from pathways_jupyter.render.view import said
from pathways_jupyter.widgets.live import CellOutput


def test_an_output_that_two_threads_draw_first_is_one_output():
    updates, second = [], threading.Event()

    def publish(bundle, *, transient, update):
        if threading.current_thread() is not other:
            other.start()
            # Time for the other one to publish too, if it may.
            second.wait(0.3)
        updates.append(update)
        second.set()

    output = CellOutput(SimpleNamespace(display_pub=SimpleNamespace(publish=publish)))
    other = threading.Thread(target=output.draw, args=(said("b"),))
    output.draw(said("a"))
    other.join(timeout=60)
    assert updates == [False, True]
