from __future__ import annotations

import pytest

from pathways_jupyter.colocated.remote import failures, namespaces


@pytest.fixture(autouse=True)
def _clean():
    yield
    namespaces.reset("s")
    namespaces.reset("t")


def run(source: str, session: str = "s"):
    return namespaces.run(session, source, "<cell 1>")


def test_the_last_expression_is_the_value() -> None:
    assert run("x = 2\nx + 1") == 3
    assert run("x = 2") is None
    assert run("x + 1;") is None
    assert run("") is None


def test_names_persist_until_they_are_reset() -> None:
    run("import numpy as np\nx = np.zeros((2, 3), np.float32)\ndef f(): return x")
    assert run("f().shape") == (2, 3)
    assert namespaces.who("s") == {"f": "function", "np": "module", "x": "ndarray float32[2, 3]"}
    namespaces.reset("s")
    assert namespaces.who("s") == {}
    with pytest.raises(NameError):
        run("x")


def test_another_session_starts_empty_and_drops_the_names_of_the_one_before() -> None:
    run("x = 1")
    with pytest.raises(NameError):
        run("x", "t")
    with pytest.raises(NameError):
        run("x")


def test_a_class_of_a_cell_can_be_pickled() -> None:
    import pickle

    run("import dataclasses\n@dataclasses.dataclass\nclass Point:\n    x: int")
    assert pickle.loads(pickle.dumps(run("Point(3)"))).x == 3


def test_a_syntax_error_names_its_line() -> None:
    with pytest.raises(SyntaxError) as caught:
        run("x = 1\ny = = 2")
    shown = failures.describe(caught.value, "<cell 1>")
    assert (shown["type"], shown["line"], shown["text"]) == ("SyntaxError", 2, "y = = 2")
