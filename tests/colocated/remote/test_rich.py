"""Rich displays of objects, as far as they are text or bytes."""

from __future__ import annotations

from pathways_jupyter.colocated.remote import rich


class Offers:
    def __repr__(self) -> str:
        return "offers"

    def _repr_mimebundle_(self, include, exclude):
        return {"text/html": "<b>bundle</b>", "application/json": {"not": "sent"}}, {"metadata": 1}

    def _repr_html_(self) -> str:
        return "<b>method</b>"

    def _repr_png_(self) -> bytes:
        return b"png"

    def _repr_latex_(self) -> None:
        return None


def test_a_bundle_comes_before_methods_and_what_is_no_text_is_left_out() -> None:
    assert rich.bundle(Offers()) == {"text/plain": "offers", "text/html": "<b>bundle</b>", "image/png": b"png"}


def test_a_class_is_not_asked_for_what_its_objects_offer() -> None:
    assert rich.bundle(Offers) == {"text/plain": repr(Offers)}


def test_figures_that_a_call_opened_are_closed_and_others_stay() -> None:
    from matplotlib import pyplot

    before = rich.prepare_figures()
    mine = pyplot.figure()
    opened = rich.prepare_figures()
    assert opened == before | {mine.number}
    pyplot.figure()
    rich.show_figures(opened, None)
    assert set(pyplot.get_fignums()) == opened
    pyplot.close(mine)
