"""A host that lies can send a notebook wrong values, and do nothing else to it."""

from __future__ import annotations

import contextlib
import dataclasses
import pickle
import re
import sys
from pathlib import Path
from typing import NamedTuple

import cloudpickle
import jax
import numpy as np
import pytest
from jax.experimental import colocated_python
from jax.experimental.colocated_python import serialization
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from pathways_jupyter import colocated
from pathways_jupyter.colocated import cell_run, displays, value_reader
from pathways_jupyter.colocated.errors import ColocatedError

pytestmark = pytest.mark.usefixtures("connection", "fresh_names")


@pytest.fixture
def mark(tmp_path) -> Path:
    """A file that exists once code of a host has run in this process."""
    return tmp_path / "ran"


def evil(mark: Path) -> str:
    """Source that defines `Evil`, whose objects run code where they are unpickled."""
    return f"""
import os
class Evil:
    def __reduce__(self):
        return os.system, ("touch {mark}",)
    def __hash__(self): return 1
"""


HIDDEN = {
    "bare": "Evil()",
    "in a list": "[1, [Evil()]]",
    "in a tuple": "(1, (Evil(),))",
    "as a dict's value": "{'a': {'b': Evil()}}",
    "as a dict's key": "{Evil(): 1}",
    "in a set": "{1, Evil()}",
    "in an array of objects": "__import__('numpy').array([Evil()], object)",
    "beside an array": "{'w': __import__('numpy').ones(2), 'e': Evil()}",
    "as an attribute": "type('Holder', (), {'e': Evil()})()",
    "as an exception's argument": "ValueError(Evil())",
}


@pytest.mark.parametrize("hidden", HIDDEN.values(), ids=HIDDEN)
def test_no_value_of_a_host_runs_code_here(hidden, mark) -> None:
    source = evil(mark) + f"z = {hidden}\nz"
    with pytest.raises(ColocatedError, match=r"Output z.*(Evil|Holder|ValueError)") as caught:
        cell_run.run_cell(source, outputs=["z"])
    assert "unpickle" in caught.value.hint
    result = cell_run.run_cell(source)
    with pytest.raises(ColocatedError, match=r"(Evil|Holder|ValueError)"):
        result.values  # noqa: B018

    @colocated.function
    def get(source):
        names = {}
        exec(source, names)
        return names["z"]

    with pytest.raises(ColocatedError, match=r"get.*(Evil|Holder|ValueError)"):
        get(source)
    assert not mark.exists()


def test_a_user_who_trusts_the_hosts_gets_any_object(mark) -> None:
    source = evil(mark) + "y = {'e': Evil(), 'n': 1}\ny"
    result = cell_run.run_cell(source, outputs=["y"], once=True, unpickle=True)
    assert result.outputs["y"] == {"e": 0, "n": 1}
    assert mark.exists(), "that is what it means"
    mark.unlink()
    assert result.values == {0: {"e": 0, "n": 1}}
    mark.unlink()

    @colocated.function(unpickle=True, once=True)
    def get(source):
        names = {}
        exec(source, names)
        return names["y"]

    assert get(source) == {"e": 0, "n": 1}
    assert mark.exists()


def test_an_exception_comes_back_as_text(mark) -> None:
    error = cell_run.run_cell(evil(mark) + "raise ValueError(Evil())", once=True).error()
    assert "ValueError" in str(error)
    assert not mark.exists()


LIAR = """
import base64, pickle, sys
payload = pickle.dumps(Evil())
text = base64.b64encode(payload).decode()
def module(name):
    package = next(each for each in sys.modules if each.startswith("_pathways_jupyter_") and each.endswith(".serve"))
    return sys.modules[package.removesuffix(".serve") + name]
"""
LYING = {
    "a pickled sharding": """
real = module(".outputs")._global
module(".outputs")._global = lambda *given: ({**real(*given)[0], "sharding": text}, real(*given)[1])
""",
    "a pickle that was not asked for": """
def lie(self, value, place):
    self.parts.append(payload)
    return ["pickle", len(self.parts) - 1, "3.11.7", []]
module(".value_writer").Writer.write = lie
""",
    "variables that were not asked for": """
real = module(".outputs").split
def lie(wanted, names, writer):
    found, written = real(wanted, names, writer)
    return {**found, "xs": 1.0}, {**written, "open": "taken"}
module(".outputs").split = lie
""",
    "a pickle in every part": """
real = module(".codec").encode
module(".codec").encode = lambda head, blobs=None: real(head, [payload] * len(blobs or []))
""",
}


@pytest.mark.parametrize("lie", LYING.values(), ids=LYING)
def test_a_host_that_lies_runs_nothing_here(lie, mark, x) -> None:
    assert cell_run.run_cell(evil(mark) + LIAR + lie).error() is None
    try:
        for inputs, made in (({"x": x}, "x"), ({}, "{'a': b'bytes', 'd': [1]}")):
            with contextlib.suppress(ColocatedError):
                result = cell_run.run_cell(f"z = {made}\nz", inputs=inputs, outputs=["z"])
                print(result.values)
                assert set(result.outputs) == {"z"}
    finally:
        colocated.restart()
    assert not mark.exists()


@pytest.fixture
def no_pickles(monkeypatch):
    """Nothing is unpickled in this process, neither by JAX nor by this package."""

    def refuse(*arguments, **keywords):
        raise AssertionError("something was unpickled")

    for module, name in (
        (pickle, "loads"),
        (cloudpickle, "loads"),
        (serialization, "_deserialize"),
        (serialization, "_deserialize_specs"),
    ):
        monkeypatch.setattr(module, name, refuse)


def test_cells_functions_objects_and_iterators_unpickle_nothing_here(no_pickles, x, mesh) -> None:
    source = """
import numpy as np
y, n, d = x, 5, {"x": x, "own": np.arange(3), "text": "a", "when": np.datetime64("2026-01-01")}
[1, 2.5, b"x", None, {3}]
"""
    result = cell_run.run_cell(source, inputs={"x": x}, outputs=["y", "n", "d"])
    assert result.error() is None
    assert all(value == [1, 2.5, b"x", None, {3}] for value in result.values.values())
    assert result.outputs["y"].sharding == x.sharding
    assert result.outputs["d"]["when"] == np.datetime64("2026-01-01")

    @colocated.function
    def same(tree):
        return tree

    assert same({"x": x, "n": (1, "a")})["x"].sharding == x.sharding

    @colocated.class_
    class Counter:
        def add(self, number):
            return {"sum": number + 1}

    assert Counter().add(1) == {"sum": 2}

    def load(host, count):
        yield {"a": np.full((4, 1), host, np.float32), "b": [np.zeros((4,), np.int32)]}

    (batch,) = colocated.iterator(load, sharding=NamedSharding(mesh, P("x")))
    assert sorted(batch) == ["a", "b"]
    assert batch["a"].shape == (16, 1)


def test_jaxs_own_colocated_python_unpickles_nothing_where_it_knows_what_comes_back(no_pickles, x, cpu_mesh) -> None:
    """The documents say so; without it JAX unpickles what a host sends, and this package cannot change that."""
    on_cpus = jax.device_put(x, NamedSharding(cpu_mesh, P("x")))

    @colocated_python.colocated_python
    def same(array):
        return array

    with pytest.raises(AssertionError, match="unpickled"):
        same(on_cpus)
    np.testing.assert_array_equal(same.specialize(out_specs_fn=lambda spec: spec)(on_cpus), np.asarray(x))


@dataclasses.dataclass
class Config:
    rate: float
    names: tuple[str, ...] = ()
    made: list[int] = dataclasses.field(default_factory=list)

    def __post_init__(self):
        raise AssertionError("a host's value ran it")


@dataclasses.dataclass
class Computed:
    rate: float


def _ran(self, rate) -> None:
    raise AssertionError("a host's value ran it")


Computed.rate = property(lambda self: 0.0, _ran)


class Step(NamedTuple):
    number: int
    arrays: dict


@pytest.fixture
def of_the_notebook(monkeypatch):
    """The classes above as a notebook's cell would define them."""
    main = sys.modules["__main__"]
    for made in (Config, Computed, Step):
        monkeypatch.setattr(made, "__module__", "__main__")
        monkeypatch.setattr(main, made.__name__, made, raising=False)


def test_dataclasses_and_named_tuples_of_the_notebook_come_back_without_running_their_code(of_the_notebook, x) -> None:
    config = object.__new__(Config)
    config.rate, config.names, config.made = 0.5, ("a",), [1]
    source = "config.rate = 0.25\nstep = step._replace(number=2)\nboth = [config, step]"
    result = cell_run.run_cell(source, inputs={"config": config, "step": Step(1, {"x": x})}, outputs=["both"])
    assert result.error() is None
    found, step = result.outputs["both"]
    assert type(found) is Config
    assert (found.rate, found.names, found.made) == (0.25, ("a",), [1])
    assert type(step) is Step
    assert step.number == 2
    assert step.arrays["x"].sharding == x.sharding


def test_a_class_that_the_notebook_has_not_defined_is_not_built(of_the_notebook, monkeypatch) -> None:
    monkeypatch.delattr(sys.modules["__main__"], "Step")
    with pytest.raises(ColocatedError, match=r"Output step cannot be read here: .* no class Step"):
        cell_run.run_cell("1", inputs={"step": Step(1, {})}, outputs=["step"])
    source = "import dataclasses\n@dataclasses.dataclass\nclass Mine:\n    x: int = 1\nz = Mine()"
    with pytest.raises(ColocatedError, match="z is an object of class Mine"):
        cell_run.run_cell(source, outputs=["z"])


@pytest.mark.parametrize("nested", ["z.append(z)", "for _ in range(3000): z = [z]"])
def test_what_is_nested_too_deeply_is_an_error_that_names_it(nested) -> None:
    error = cell_run.run_cell(f"z = []\n{nested}", outputs=["z"]).error()
    assert "nested too deeply to be sent back, or holds itself" in str(error)
    assert cell_run.run_cell(f"z = []\n{nested}\nz").hosts[0].value is None
    # What can be written can be read.
    depths = [20, 100, 200]
    for depth in depths:
        result = cell_run.run_cell(f"z = 0\nfor _ in range({depth}): z = [z]", outputs=["z"])
        assert result.error() is None
        assert repr(result.outputs["z"]).count("[") == depth


PARTS = [b"12345678", pickle.dumps(print), b""]
HOSTILE = {
    "a pickle": ["pickle", 1, "3.11.7", []],
    "an unknown kind": ["reduce", "os.system", ["true"]],
    "no kind": [],
    "a kind that is a list": [[], 1],
    "a kind that is an attribute": ["__class__", 1],
    "an object": {"a": 1},
    "bytes as objects": ["numpy", "|O", [1], 0],
    "bytes as an object in a field": ["numpy", "i4,O", [1], 0],
    "fields": ["numpy", [["a", "<f4", []]], [1], 0],
    "more than the bytes": ["numpy", "<f8", [2], 0],
    "a size below nothing": ["numpy", "<f8", [-1, -1], 0],
    "items without a size, so many that copying them never ends": ["numpy", "|V0", [10**15], 2],
    "one part as many values": ["list", [["bytearray", 0], ["bytearray", 0]]],
    "a field that is a property": ["dataclass", "__main__", "Computed", [["rate", 1]]],
    "a part that is not there": ["bytes", 7],
    "a part from the end": ["bytes", -1],
    "a class of a library": ["dataclass", "subprocess", "Popen", [["args", "true"]]],
    "a class that is no dataclass": ["dataclass", "__main__", "Plain", [["x", 1]]],
    "a class in a function": ["dataclass", "__main__", "run.<locals>.X", []],
    "an attribute of an attribute": ["dataclass", "__main__", "Plain.__init__.__globals__", []],
    "a module's module": ["dataclass", "__main__", "sys", []],
    "a field that is not one": ["dataclass", "__main__", "Config", [["__class__", "x"]]],
    "a dataclass as a tuple": ["namedtuple", "__main__", "Config", [["rate", 1]]],
    "fields of another tuple": ["namedtuple", "__main__", "Step", [["number", 1]]],
    "another factory": ["defaultdict", [], "eval"],
    "a list as a key": ["dict", [[["list", []], 1]]],
    "an array by no name": ["array", "w"],
    "a number as text": ["datetime", 5],
    "another library": ["pandas", "read_pickle", "/etc/passwd"],
    "a dtype whose one value fills the memory": ["numpy", "S2000000000", [1], 0],
}


@pytest.mark.parametrize("written", HOSTILE.values(), ids=HOSTILE)
def test_what_no_host_of_ours_writes_is_refused_in_one_sentence(
    written, of_the_notebook, no_pickles, monkeypatch
) -> None:
    class Plain:
        def __setattr__(self, name, value):
            raise AssertionError("a host's value ran it")

    Plain.__module__, Plain.__qualname__ = "__main__", "Plain"
    monkeypatch.setattr(sys.modules["__main__"], "Plain", Plain, raising=False)
    with pytest.raises(ColocatedError, match="Output z") as caught:
        value_reader.Reader("Output z", PARTS).read(written)
    assert not isinstance(caught.value.__cause__, AssertionError)


@pytest.mark.parametrize(
    "rest",
    ["<a " * 200_000, "<!--" * 200_000, "<b>" * 50_000 + "</i>" * 50_000, "<svg>" * 50_000 + "</math>" * 50_000],
    ids=["tags", "comments", "elements", "pictures"],
)
def test_a_page_that_is_not_well_formed_is_read_once(rest) -> None:
    """Otherwise reading one of these takes minutes to hours."""
    assert displays.harmless({"text/html": f"<p>1 &lt; 2 {rest}"})["text/html"].startswith("<p>1 &lt; 2 ")


def test_what_a_host_displays_runs_nothing_in_the_page(tmp_path) -> None:
    source = """
class Page:
    def _repr_mimebundle_(self, **kwargs):
        return {
            "image/png": "x' onerror='alert(1)", "image/jpeg": "/9j/\\n",
            "application/javascript": "alert(1)", "text/markdown": "<script>alert(1)</script>",
            "text/html": "<table border=1 onclick='alert(1)'><tr><td style='x' colspan=2>1 &lt; 2"
            "<script>alert(1)</script><img src=x onerror=alert(1)><a href='javascript:alert(1)'>here</a></table>"
            "<svg onload=alert(1)>",
        }
class Drawing:
    def _repr_svg_(self): return "<svg onload='alert(1)'></svg>"
display(Page(), Drawing())
"""
    page, drawing = cell_run.run_cell(source, once=True).hosts[0].items
    assert sorted(page.data) == ["image/jpeg", "text/html", "text/plain"]
    assert page.data["image/jpeg"] == b"\xff\xd8\xff"
    assert page.data["text/html"] == '<table border="1"><tr><td colspan="2">1 &lt; 2here</td></tr></table>'
    assert set(drawing.data) == {"text/html", "text/plain"}
    assert drawing.data["text/html"].startswith('<img src="data:image/svg+xml;base64,')
    page, drawing = cell_run.run_cell(source, once=True, unpickle=True).hosts[0].items
    assert "onclick" in page.data["text/html"]
    assert "image/svg+xml" in drawing.data


def test_a_host_that_claims_an_endless_answer_is_not_fetched_from() -> None:
    source = """
import struct, sys
package = next(each for each in sys.modules if each.startswith("_pathways_jupyter_") and each.endswith(".serve"))
codec = sys.modules[package.removesuffix(".serve") + ".codec"]
real = codec.encode
def lie(head, blobs=None):
    data = real(head, blobs)
    return struct.pack("<Q", 1 << 60) + data[8:] if "transcript" in head else data
codec.encode = lie
"""
    try:
        with pytest.raises(ColocatedError, match=r"host 0 has an answer of \d+ bytes; at most \d+ are fetched"):
            cell_run.run_cell(source)
    finally:
        colocated.restart()


def test_an_error_of_a_host_is_cut_and_has_no_control_characters() -> None:
    source = "raise ValueError('first\\n' + chr(27) + '[2J' + chr(7) + 'x' * 3_000_000)"
    error = cell_run.run_cell(source, once=True).error()
    shown = f"{error} {error.failures[0].message} {error.remote_traceback()}"
    assert "ValueError: first" in shown
    assert len(shown) < 200_000
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown)
    # So are the messages of this package that contain something of a host's.
    assert str(ColocatedError("\x1b[2J")) == "\N{REPLACEMENT CHARACTER}[2J"
    with pytest.raises(ColocatedError) as caught:
        value_reader.Reader("Output z", []).read(["other", "\x1b[2J", "x" * 1_000_000])
    assert len(str(caught.value)) < 100_000
    assert "\x1b" not in str(caught.value)
