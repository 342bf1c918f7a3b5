from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
from importlib import metadata
from pathlib import Path

import pytest
from cells import values
from waits import has_ended
from wheels import wheel

from pathways_jupyter.colocated import cell_run, live_output, memory, restart
from pathways_jupyter.colocated.errors import CellSyntaxError, CheckError
from pathways_jupyter.colocated.remote.transcript import TAIL_BYTES, TEXT_BYTES
from pathways_jupyter.colocated.results import Display, Interrupted

pytestmark = pytest.mark.usefixtures("connection", "fresh_names")


def test_each_host_has_its_own_process_index_pid_and_directory() -> None:
    found = values("import jax, os\n(jax.process_index(), os.getpid(), os.getcwd(), jax.process_count())")
    indices, pids, directories, counts = zip(*(found[host] for host in range(4)), strict=True)
    assert indices == (0, 1, 2, 3)
    assert len(set(pids)) == len(set(directories)) == 4
    assert counts == (4, 4, 4, 4)
    assert os.getpid() not in pids


def test_what_a_cell_installs_is_its_hosts_own(tmp_path) -> None:
    made = wheel(tmp_path, "pathways_tiny", "2.0")
    install = [sys.executable, "-m", "pip", "install", "--no-index", "--quiet", str(made)]
    values(f"import subprocess\ninstalled = subprocess.run({install}, check=True)", hosts="0")
    assert "/pods/" in values("import pathways_tiny\npathways_tiny.__file__", hosts="0")[0]
    assert not [each for each in metadata.distributions() if each.name == "pathways_tiny"]


def test_names_stay_on_the_host_that_defined_them() -> None:
    values("y = 1", slices="0")
    error = cell_run.run_cell("y").error()
    assert error.failures[0].hosts == (2, 3)
    assert error.failures[0].type == "NameError"
    assert {host: "y" in names for host, names in memory.who().items()} == {0: True, 1: True, 2: False, 3: False}
    memory.reset(hosts=[0])
    assert [host for host, names in memory.who().items() if "y" in names] == [1]


def test_ten_thousand_lines_of_four_hosts_arrive_complete_and_in_order() -> None:
    result = cell_run.run_cell("import jax\nfor line in range(10_000): print(jax.process_index(), 'line', line)")
    for index, host in enumerate(result.hosts):
        assert host.text == "".join(f"{index} line {line}\n" for line in range(10_000))


def test_output_streams_warnings_and_logging_come_back_in_order() -> None:
    source = """
import logging, sys, warnings
print("one")
print("two", file=sys.stderr)
warnings.warn("three")
logging.getLogger("here").warning("four")
print("five")
"""
    (host,) = cell_run.run_cell(source, once=True).hosts
    text = host.text
    places = [text.index(word) for word in ("one", "two", "UserWarning: three", "four", "five")]
    assert places == sorted(places)


def test_a_flood_is_cut_and_its_end_comes_along() -> None:
    result = cell_run.run_cell("for number in range(50): print(number, 'x' * 999_999)", hosts="0,3")
    for host in result.hosts:
        assert len(host.text) <= TEXT_BYTES
        assert host.text.startswith("0 x")
        assert host.tail.endswith("x\n")
        assert TAIL_BYTES <= len(host.tail) < 2 * TAIL_BYTES
        assert host.size > 50_000_000


def test_a_host_keeps_no_answer_that_has_been_fetched() -> None:
    large = cell_run.run_cell("large = b'x' * 3_000_000", outputs=["large"], once=True)
    assert large.outputs["large"] == b"x" * 3_000_000
    source = """
import sys

kept = next(module for name, module in sys.modules.items() if name.endswith(".serve") and "_pathways" in name)._replies
max(map(len, kept.values()), default=0) < 3_000_000
"""
    assert values(source, once=True) == {0: True}


def test_a_figure_that_is_too_large_is_left_out_with_its_size() -> None:
    source = """
class Large:
    def _repr_png_(self): return b"x" * 50_000_000
    def __repr__(self): return "a large picture"
Large()
"""
    (shown,) = cell_run.run_cell(source, once=True).hosts[0].items
    assert isinstance(shown, Display)
    assert dict(shown.data) == {"text/plain": "a large picture"}
    assert dict(shown.left) == {"image/png": 50_000_000}


def test_figures_and_rich_reprs_are_displayed_here() -> None:
    source = """
import matplotlib.pyplot as plt
plt.plot([1, 2])
plt.show()
class Table:
    def _repr_html_(self): return "<b>1</b>"
display(Table())
print("between")
Table()
"""
    (host,) = cell_run.run_cell(source, once=True).hosts
    table, between, figure, value = host.items
    assert between.text == host.text == "between\n"
    assert set(table.data) == set(value.data) == {"text/plain", "text/html"}
    assert figure.data["image/png"].startswith(b"\x89PNG")
    assert value.value


def test_an_exception_shows_the_cells_lines_once() -> None:
    error = cell_run.run_cell("def f(y):\n    return 1 / y\n\nf(0)").error()
    assert str(error).startswith("all 4 hosts, line 2: return 1 / y: ZeroDivisionError")
    assert error.remote_traceback().count("ZeroDivisionError") == 1
    assert "f(0)" in error.remote_traceback()
    assert "namespaces" not in error.remote_traceback()


def test_hosts_whose_errors_differ_only_by_where_objects_lie_failed_alike() -> None:
    error = cell_run.run_cell("raise ValueError(object())").error()
    assert [failure.hosts for failure in error.failures] == [(0, 1, 2, 3)]


def test_an_exception_that_a_cell_defined_goes_by_its_own_name() -> None:
    error = cell_run.run_cell("class Mine(Exception): pass\nraise Mine('here')", once=True).error()
    assert error.remote_traceback().splitlines()[-1] == "Mine: here"


def test_the_same_lines_are_shown_once_also_when_messages_differ() -> None:
    error = cell_run.run_cell("import jax\nraise ValueError(f'bad part {jax.process_index()}')").error()
    assert error.remote_traceback().count("Traceback") == 1
    for host in range(4):
        assert f"ValueError: bad part {host}" in error.remote_traceback()
    assert "On host 3, at the same place as host 0: ValueError: bad part 3" in error.remote_traceback()


def test_await_works_outside_of_functions() -> None:
    source = """
import asyncio
async def work(number):
    await asyncio.sleep(0.01)
    return number
one = await work(1)
await asyncio.gather(work(one), work(2))
"""
    assert values(source, once=True) == {0: [1, 2]}
    assert values("one + await work(3)", once=True) == {0: 4}


def test_interrupt_ends_a_cell_that_awaits(tmp_path) -> None:
    interrupt_when(tmp_path / "started")
    source = f"import asyncio\nopen({str(tmp_path / 'started')!r}, 'w')\nawait asyncio.sleep(60)"
    with pytest.raises(Interrupted, match="stopped"):
        cell_run.run_cell(source, once=True)
    assert values("1", once=True) == {0: 1}


def test_an_open_file_as_the_value_is_shown_and_not_read() -> None:
    (host,) = cell_run.run_cell("open('/dev/zero', 'rb')", once=True).hosts
    assert "/dev/zero" in host.items[0].data["text/plain"]
    assert host.value is None


def test_a_long_repr_is_cut() -> None:
    (host,) = cell_run.run_cell("list(range(100_000))", once=True).hosts
    text = host.items[0].data["text/plain"]
    assert text.endswith("... (688,890 characters)")
    assert len(text) < 25_000


def test_a_host_that_fails_alone_is_named() -> None:
    error = cell_run.run_cell("import jax\nassert jax.process_index() != 2, 'not here'").error()
    assert str(error).startswith("host 2, line 2: ")
    assert "AssertionError: not here" in str(error)


def test_what_a_cell_exits_with_is_an_error_and_nothing_worse() -> None:
    assert cell_run.run_cell("import sys\nsys.exit(3)").error().failures[0].type == "SystemExit"
    assert values("1", once=True) == {0: 1}


def test_a_missing_package_is_reported_before_anything_runs() -> None:
    with pytest.raises(CheckError, match=r"not_a_package is not installed on hosts 0-3\. Nothing was run") as caught:
        cell_run.run_cell("y = 1\nimport not_a_package")
    assert f"{shlex.quote(sys.executable)} -m pip install not_a_package" in caught.value.hint
    assert all("y" not in names for names in memory.who().values())


def test_a_module_beside_the_cell_is_found() -> None:
    values("open('made_here.py', 'w').write('answer = 42\\n')")
    assert values("import made_here\nmade_here.answer") == dict.fromkeys(range(4), 42)


def test_what_cannot_be_pickled_is_reported_before_anything_runs() -> None:
    lock = threading.Lock()
    with pytest.raises(CheckError, match=r"lock \(lock\): cannot pickle"):
        cell_run.run_cell("y = 1", inputs={"lock": lock})
    assert all("y" not in names for names in memory.who().values())


def test_a_cell_that_cannot_run_is_not_sent() -> None:
    with pytest.raises(CellSyntaxError, match="Line 1: invalid syntax"):
        cell_run.run_cell("x = = 1")
    with pytest.raises(CheckError, match="'a b' cannot be the name of an output"):
        cell_run.run_cell("a = 1", outputs=["a b"])


def interrupt_when(*paths: Path) -> threading.Thread:
    """Presses Interrupt when a cell has made these files."""

    def watch() -> None:
        while not all(path.exists() for path in paths):
            threading.Event().wait(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("waiting", ["while True: pass", "while True: time.sleep(0.01)"])
def test_interrupt_stops_the_remote_cell(waiting: str, tmp_path) -> None:
    source = f"""
import jax, time
y = 1
open({str(tmp_path / "started")!r} + str(jax.process_index()), "w")
{waiting}
"""
    interrupt_when(*(tmp_path / f"started{host}" for host in range(4)))
    with pytest.raises(Interrupted, match="stopped in line 5"):
        cell_run.run_cell(source)
    assert values("y") == dict.fromkeys(range(4), 1)


def test_what_was_printed_long_before_its_log_was_opened_is_shown_while_the_cell_runs(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(live_output, "_LOOK_BACK_SECONDS", 1)
    monkeypatch.setattr(live_output, "_AFTER_SECONDS", 2.5)
    go = tmp_path / "go"
    shown: list[str] = []

    def show(stream: str, line: str) -> None:
        shown.append(line)
        go.touch()

    source = f"""
import os, time
print("early")
began = time.monotonic()
while not os.path.exists({str(go)!r}) and time.monotonic() < began + 60: time.sleep(0.05)
os.path.exists({str(go)!r})
"""
    assert values(source, once=True, follow=live_output.LogFollower(show).start) == {0: True}
    assert shown == ["[host 0] early\n"]


def test_interrupt_ends_a_cell_that_waits_in_c_and_says_where(tmp_path) -> None:
    # Another thread makes the file, when the cell's own has long been in C.
    begin = f"threading.Timer(0.3, open, [{str(tmp_path / 'started')!r}, 'w']).start()"
    interrupt_when(tmp_path / "started")
    with pytest.raises(Interrupted, match=r"did not stop yet, in line 3: time\.sleep\(20\)"):
        cell_run.run_cell(f"import threading, time\n{begin}\ntime.sleep(20)", once=True)
    assert values("1", once=True) == {0: 1}


def test_a_cell_that_catches_interrupt_is_ended_by_a_restart(tmp_path) -> None:
    started, living = tmp_path / "started", tmp_path / "living"
    values("before = 1")
    interrupt_when(started)
    source = f"""
import os, time
open({str(started)!r}, "w")
while True:
    try:
        open({str(living)!r}, "w").write(str(os.getpid()))
        time.sleep(0.01)
    except KeyboardInterrupt:
        pass
"""
    with pytest.raises(Interrupted, match=r"host 1 did not (stop yet|answer)") as caught_here:
        cell_run.run_cell(source, hosts=[1])
    assert "%colocated restart ends what still runs." in caught_here.value._render_traceback_()[0]
    assert caught_here.value.__notes__ == ["colocated.restart() ends what still runs."]
    # The cell empties the file before it writes.
    caught = int(next(text for _ in iter(int, 1) if (text := living.read_text())))
    assert values("import os\nos.getpid()", hosts=[1]) == {1: caught}
    assert [host.index for host in restart(hosts=[1])] == [1]
    assert has_ended(caught)
    assert values("'before' in globals()") == {0: True, 1: False, 2: True, 3: True}
