"""%%colocated in a real kernel, on the embedded cluster."""

import base64
import sys
from pathlib import Path

import pytest
from waits import wait_until

ARRAY = """
import jax, numpy as np
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
x = jax.device_put(np.arange(8.0), jax.NamedSharding(mesh, jax.P("x")))
"""


@pytest.fixture(scope="module")
def connected(cluster, shared_notebook):
    shared_notebook.connect("--local --tpu tpuv6e:2x2=2")
    shared_notebook.run(ARRAY)
    return shared_notebook


def lines(cell) -> list[str]:
    """The lines of a cell's output, wherever its outputs are cut."""
    return [line for line in cell.text.splitlines() if line]


def test_output_is_labelled_by_host_and_the_value_is_shown(connected) -> None:
    cell = connected.run("%%colocated\nimport jax\nprint('here')\njax.process_index()")
    *printed, first, second = lines(cell)
    # What a cell prints that takes long, on a slow machine, is shown as it comes.
    assert sorted(printed) == ["[host 0] here", "[host 1] here"]
    assert [first, second] == ["[host 0] 0", "[host 1] 1"]
    assert connected.run("print(_[1])").text.strip() == "1"


def test_equal_output_can_be_collapsed_and_left_out(connected) -> None:
    assert lines(connected.run("%%colocated --collapse\nprint('here')")) == ["[hosts 0, 1] here"]
    assert lines(connected.run("%%colocated --quiet\nprint('here')")) == []


def test_names_stay_on_the_hosts_until_they_are_reset(connected) -> None:
    connected.run("%%colocated\ny = 1")
    assert "hosts 0, 1" in connected.run("%colocated who").text
    connected.run("%colocated reset")
    assert "No names" in connected.run("%colocated who").text


def test_an_exception_shows_the_cells_own_lines_once(connected) -> None:
    cell = connected.run("%%colocated\ndef f(y):\n    return 1 / y\nf(0)")
    assert cell.error == "HostError"
    assert cell.shown.count("ZeroDivisionError") == 1
    assert "On all 2 hosts:" in cell.shown
    assert "return 1 / y" in cell.shown
    assert len(cell.shown.splitlines()) < 15


def test_figures_and_tables_made_on_a_host_are_displayed(connected) -> None:
    source = """%%colocated --once
class Picture:
    def _repr_png_(self): return b"\\x89PNG..."
    def _repr_html_(self): return "<b>1</b>"
Picture()
"""
    cell = connected.run(source)
    (shown,) = [each for each in cell.outputs if "image/png" in each.get("data", {})]
    assert base64.b64decode(shown["data"]["image/png"]) == b"\x89PNG..."
    assert "<b>1</b>" in cell.html


def test_lines_are_shown_while_the_cell_runs_and_not_again_at_its_end(connected, tmp_path) -> None:
    go = tmp_path / "go"
    source = f"""%%colocated
import os, threading
print("begun")
while not os.path.exists({str(go)!r}): threading.Event().wait(0.05)
print("ended")
"""
    first = len(connected.seen)
    request = connected.begin(source)
    connected.wait_for("[host 1] begun", since=first)
    go.touch()
    connected.finish(request)
    shown = "".join(connected.seen[first:]).splitlines()
    assert sorted(shown) == ["[host 0] begun", "[host 0] ended", "[host 1] begun", "[host 1] ended"]


def test_interrupt_stops_the_cell_and_not_the_connection(connected) -> None:
    first = len(connected.seen)
    request = connected.begin("%%colocated\nprint('begun')\nwhile True: pass")
    connected.wait_for("[host 0] begun", since=first)
    connected.wait_for("[host 1] begun", since=first)
    connected.manager.interrupt_kernel()
    cell = connected.finish(request)
    assert cell.error == "Interrupted"
    assert "hosts 0, 1 stopped in line 2" in cell.shown
    assert connected.run("%%colocated --once\n1").text.strip() == "[host 0] 1"


def test_an_interrupted_cell_shows_what_it_had_printed(connected, machine) -> None:
    begun = machine.directory / "interrupted"
    request = connected.begin(
        "%%colocated --collapse\nimport jax\nprint('here')\n"
        f"open({str(begun)!r} + str(jax.process_index()), 'w').close()\nwhile True: pass"
    )
    wait_until(lambda: all(Path(f"{begun}{host}").exists() for host in range(2)))
    connected.manager.interrupt_kernel()
    cell = connected.finish(request)
    assert cell.error == "Interrupted"
    assert lines(cell) == ["[hosts 0, 1] here"]


PLAIN = """
from jax.experimental import colocated_python
on_cpus = jax.device_put(x, jax.NamedSharding(colocated_python.colocated_cpu_devices(mesh), jax.P("x")))

@colocated_python.colocated_python_class
class Adder:
    def __init__(self): pass
    def add(self, x): return x + 1

@colocated_python.colocated_python
def endless(x):
    import jax, time
    open(BEGUN + str(jax.process_index()), "w").close()
    while True: time.sleep(0.05)

@colocated_python.colocated_python
def same(x): return x
"""


def test_after_an_interrupted_call_of_jaxs_own_the_next_one_works_and_the_first_can_be_ended(
    connected, machine
) -> None:
    begun = machine.directory / "plain"
    assert connected.run(f"BEGUN = {str(begun)!r}\n{PLAIN}").status == "ok"
    request = connected.begin("endless(on_cpus)")
    wait_until(lambda: all(Path(f"{begun}{host}").exists() for host in range(2)))
    connected.manager.interrupt_kernel()
    cell = connected.finish(request)
    assert cell.error == "KeyboardInterrupt"
    assert "%colocated restart ends it" in cell.text
    assert connected.run("print(same(on_cpus).sum())").text.strip() == "28.0"
    assert connected.run("%colocated restart").status == "ok"
    assert connected.run("print(same(on_cpus).sum())").text.strip() == "28.0"


def test_arithmetic_with_an_array_of_several_hosts_is_an_error_of_three_lines(connected) -> None:
    assert connected.run(f"BEGUN = ''\n{PLAIN}").status == "ok"
    for source in (
        "%%colocated --in x\nx + 1",
        "Adder().add(on_cpus)",
        "from pathways_jupyter import colocated\n@colocated.class_\nclass Own:\n"
        "    def add(self, x): return x + 1\nOwn().add(x)",
    ):
        cell = connected.run(source)
        assert "[shard.data for shard in array.addressable_shards]" in cell.shown, source
        assert len(cell.shown.strip().splitlines()) == 3, cell.shown
    connected.run("Adder().add(on_cpus)")
    assert "_deserialize_specs" in connected.run("%pathways traceback").text


def test_a_second_interrupt_ends_the_waiting_in_one_line(connected) -> None:
    first = len(connected.seen)
    request = connected.begin(
        "%%colocated\nimport time\nprint('begun')\ntry:\n    while True: time.sleep(0.01)\n"
        "except KeyboardInterrupt:\n    print('asked to stop')\n    time.sleep(8)"
    )
    connected.wait_for("[host 0] begun", since=first)
    connected.wait_for("[host 1] begun", since=first)
    connected.manager.interrupt_kernel()
    connected.wait_for("asked to stop", since=first)
    connected.manager.interrupt_kernel()
    cell = connected.finish(request)
    assert cell.error == "Interrupted"
    assert len(cell.shown.splitlines()) == 1
    assert lines(connected.run("%%colocated\n1")) == ["[hosts 0, 1] 1"]


def test_a_host_that_fails_is_reported_while_others_still_run(connected) -> None:
    first = len(connected.seen)
    request = connected.begin(
        "%%colocated\nimport jax, time\nif jax.process_index() == 1: raise ValueError('alone')\n"
        "print('begun')\nwhile True: time.sleep(0.1)"
    )
    connected.wait_for("[host 0] begun", since=first)
    connected.wait_for("[host 1] failed, while others may still run: ValueError: alone", since=first)
    connected.manager.interrupt_kernel()
    cell = connected.finish(request)
    assert "host 0 stopped in line 4" in cell.shown
    assert "host 1 had failed: ValueError: alone" in cell.shown


def test_lines_shown_while_a_cell_runs_keep_their_stream_and_progress_is_shown(connected, tmp_path) -> None:
    go = tmp_path / "go"
    source = f"""%%colocated --once
import os, sys, threading
sys.stderr.write("bad\\n")
sys.stderr.write("\\r 10%")
sys.stderr.write("\\r 20%")
while not os.path.exists({str(go)!r}): threading.Event().wait(0.05)
sys.stderr.write("\\r100%\\n");
"""
    first = len(connected.seen)
    request = connected.begin(source)
    cell = connected.finish(request, until="[host 0]  10%")
    go.touch()
    cell.outputs += connected.finish(request).outputs
    shown = "".join(connected.seen[first:]).splitlines()
    assert shown == ["[host 0] bad", "[host 0]  10%", "[host 0] 100%"]
    assert {each["name"] for each in cell.outputs} == {"stderr"}
    cell = connected.run("%%colocated --once\nimport sys\nsys.stderr.write('bad\\n');")
    assert [each["name"] for each in cell.outputs] == ["stderr"]


@pytest.mark.parametrize(
    ("source", "shown", "lines"),
    [
        ("x = = 1", "    x = = 1\n        ^\nSyntaxError: invalid syntax", 4),
        ("return 1", "SyntaxError: 'return' outside function", 2),
        ("!ls", "hosts run plain Python: use subprocess.run", 5),
        ("%%time\n1", "put a cell magic such as %%time above %%colocated", 5),
    ],
)
def test_a_syntax_error_shows_the_cells_line_and_nothing_of_the_machinery(connected, source, shown, lines) -> None:
    cell = connected.run(f"%%colocated\n{source}")
    assert shown in cell.shown
    assert len(cell.shown.splitlines()) <= lines


def test_a_cell_magic_above_times_the_cell_on_the_hosts(connected) -> None:
    cell = connected.run("%%time\n%%colocated --once\nprint('here')")
    assert "[host 0] here" in cell.text
    assert "Wall time" in cell.text


def test_names_may_be_listed_with_spaces_or_one_by_one(connected) -> None:
    connected.run("one, two = 1, 2")
    for names in ("--in one, two", "--in one --in two"):
        assert lines(connected.run(f"%%colocated {names} --once\none + two")) == ["[host 0] 3"]


@pytest.mark.thorough
def test_many_lines_of_all_hosts_are_few_messages_and_a_small_part_of_the_file(connected) -> None:
    cell = connected.run("%%colocated\nfor number in range(200_000): print('line', number)")
    assert "more were printed" in cell.text
    assert "line 199999" in cell.text
    assert len(cell.text) < 1_200_000
    assert len(cell.outputs) < 400


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%%colocated --in nothing\n1", "--in names nothing"),
        ("%%colocated --slices 7\n1", "There is no slice 7"),
        ("%%colocated --hosts x\n1", "'x' does not name a host"),
        ("%%colocated --nonsense\n1", "does not take '--nonsense'"),
        ("%colocated nonsense", "There is no command 'nonsense'"),
        ("%%colocated\nimport not_a_package", "not_a_package is not installed on hosts 0, 1"),
    ],
)
def test_a_mistake_gets_one_clear_line(connected, line, message) -> None:
    cell = connected.run(line)
    assert message in cell.shown
    assert len(cell.shown.strip().splitlines()) <= 3


def test_help_and_hosts_are_shown(connected) -> None:
    assert "--collapse" in connected.run("%colocated").text
    assert "--collapse" in connected.run("%%colocated --help\n1").text
    assert "Forget the names" in connected.run("%colocated help reset").text
    assert "There is no command 'rest'" in connected.run("%colocated help rest").shown
    hosts = connected.run("%colocated hosts").text
    assert "Python" in hosts
    assert "JAX" in hosts
    assert sys.executable in hosts


def test_a_restart_says_what_is_gone_and_the_next_cell_runs_without_a_warning(connected) -> None:
    connected.run("%%colocated\nkept = 1")
    assert "hosts 0, 1 restarted; names of earlier cells are gone there." in connected.run("%colocated restart").text
    cell = connected.run("%%colocated\n'kept' in globals()")
    assert lines(cell) == ["[hosts 0, 1] False"]


def test_values_come_back_as_variables(connected) -> None:
    source = "%%colocated --out name,mine\nimport jax\nname, mine = 'all', {'host': jax.process_index()}"
    assert "mine is not the same on all hosts" in connected.run(source).text
    assert connected.run("print(name, mine[1])").text.strip() == "all {'host': 1}"


def test_an_object_of_a_class_that_a_cell_defines_is_refused_with_what_to_do(connected) -> None:
    source = "class Plain:\n    number = 1\nplain = Plain()"
    cell = connected.run(f"%%colocated --out plain\n{source}")
    assert cell.error == "ColocatedError"
    assert "Output plain is not read: plain is an object of class Plain, which could run code here." in cell.shown
    assert "--unpickle" in cell.shown
    assert len(cell.shown.strip().splitlines()) <= 3
    # The value is shown, since text runs nothing; it is refused when it is used.
    shown = connected.run("%%colocated --once\nPlain()")
    assert "Plain object" in shown.text
    assert "object of class Plain" in connected.run("_[0]").shown
    trusted = connected.run(f"%%colocated --unpickle --once --out plain\n{source}")
    assert (trusted.status, trusted.text) == ("ok", ""), trusted.shown
    assert connected.run("print(plain.number)").text.strip() == "1"


def test_options_and_commands_are_completed(connected) -> None:
    def completed(code: str) -> list[str]:
        reply = connected.client.complete(code, reply=True, timeout=60)
        return reply["content"]["matches"]

    assert "--collapse" in completed("%%colocated --col")
    assert "who" in completed("%colocated w")
    assert completed("%%colocated --slices ") == ["0", "1"]
    assert completed("%%colocated --hosts 0,") == ["0", "1"]
    assert completed("%colocated who --hosts 1") == ["1"]
    assert completed("%%colocated --in ") == [""]


@pytest.mark.thorough
def test_without_a_session_nothing_runs_anywhere(notebook) -> None:
    notebook.run("%load_ext pathways_jupyter")
    cell = notebook.run("%%colocated\nprint('here')")
    assert cell.error == "CheckError"
    assert "%pathways connect" in cell.shown
    assert "here" not in cell.text
