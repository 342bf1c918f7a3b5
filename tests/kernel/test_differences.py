"""Differences between two Pythons, in words."""

import pytest

from pathways_jupyter.kernel import differences


@pytest.mark.parametrize(
    ("here", "there", "said"),
    [
        ({"python": "3.11.7"}, {"python": "3.11.2"}, ""),
        ({"python": "3.11.7"}, {"python": "3.13.0"}, "In the pod: Python 3.13.0 (here 3.11.7)."),
        (
            {"python": "3.11.7", "numpy": "2.1.0", "mine": "", "gone": None},
            {"python": "3.11.7", "numpy": "1.26.4", "mine": None, "gone": None},
            "In the pod: numpy 1.26.4 (here 2.1.0). Not in the pod: mine.",
        ),
    ],
)
def test_only_what_matters_is_said(here, there, said):
    assert differences.sentences(here, there) == said


@pytest.mark.thorough
def test_packages_are_those_of_the_cells_that_can_be_read(tmp_path):
    (tmp_path / "n.ipynb").write_text(
        '{"cells": [{"cell_type": "code", "source": ["!ls\\n", "import a.b, sys\\n", "from .c import d"]}]}'
    )
    assert differences.imported(str(tmp_path / "n.ipynb")) == ["a"]
    (tmp_path / "bad.ipynb").write_text("[]")
    assert differences.imported(str(tmp_path / "bad.ipynb")) == []
    assert differences.imported("") == []
    assert differences.versions(["a", "numpy", "json"]).keys() == {"python", "a", "numpy", "json"}
    assert differences.versions(["no_such_package"])["no_such_package"] is None
