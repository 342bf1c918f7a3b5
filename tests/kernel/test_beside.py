"""A kernel beside the chips, from its kernelspec to its end, used as front ends use it."""

import asyncio
import contextlib
import json
import os
import queue
import re
import signal
import time
from pathlib import Path

import psutil
import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager
from kernel_transport import ipc
from kinds import CONFIG_MAPS, NODES
from pathways_jobs import headless
from plugin_tokens import Token
from waits import have_ended, wait_until

from benchmarks.link import Link
from pathways_jupyter.kernel import near
from pathways_jupyter.kube import auth, objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.local.node import programs
from pathways_jupyter.service import jobs
from pathways_jupyter.service.pathwaysjob import submission

pytestmark = pytest.mark.timeout(240)

NAME = "pathways-embedded-cluster"
CONNECT = (
    "%load_ext pathways_jupyter\n%pathways connect --tpu tpuv6e:2x2=1 --wait 60\n"
    "import jax; print(jax.devices()[0].platform, len(jax.devices()))"
)


def manager(machine, name=NAME):
    """A kernel's manager, as a Jupyter server makes it: the connection file has the kernel's id."""
    specs = KernelSpecManager(kernel_dirs=[str(machine.directory / ".local/share/jupyter/kernels")])
    made = KernelManager(kernel_name=name, kernel_spec_manager=specs, **ipc(machine.directory))
    made.connection_file = str(machine.directory / f"kernel-{os.urandom(4).hex()}.json")
    return made


def connection_id(starting):
    return Path(starting.connection_file).stem.removeprefix("kernel-")


def kernel_id(notebook):
    return connection_id(notebook.manager)


def processes_here(machine):
    """The kernelspec's processes, and the detached ones behind them."""

    def is_one(process):
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            return "pathways_jupyter.kernel" in words and str(machine.directory) in " ".join(words)
        return False

    return [each for each in psutil.process_iter() if is_one(each)]


def near_end(machine, notebook):
    """The detached process behind the kernelspec's."""
    (found,) = (each for each in processes_here(machine) if each.pid != notebook.manager.provisioner.pid)
    return found


def place(machine, notebook):
    """The near end's report to pages; None once it has gone."""
    return place_of(machine, kernel_id(notebook))


def place_of(machine, kernel):
    """As pages read it: it may be written at that moment."""
    path = machine.runtime / "pathways" / "kernels" / f"{kernel}.json"
    while path.exists():
        with contextlib.suppress(OSError, ValueError):
            return json.loads(path.read_text())
    return None


def sessions(machine):
    return json.loads(machine.cli("sessions", "--json").stdout)


def processes_there(machine):
    """The pod's processes that are kernels, and the one that waits to become the next."""
    found = []
    for each in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = " ".join(each.cmdline())
            if "pathways_jupyter.kernel.lab_kernel" in words and str(machine.directory) in each.environ()["HOME"]:
                found.append(each.pid)
    return found


def until_moved(notebook, where):
    """Wait until the process of a kernel that moves is the other program; what runs before is refused."""
    program = "ipykernel_launcher" if where == "on your machine" else "pathways_jupyter.kernel"
    wait_until(lambda: program in psutil.Process(notebook.manager.provisioner.pid).cmdline())


async def objects_of_all_kinds(cluster):
    async with Client(auth.load(str(cluster))) as client:
        kinds = (objects.PODS, objects.JOBS, objects.SECRETS, CONFIG_MAPS, objects.LEASES, objects.EVENTS)
        return [each for kind in kinds for each in (await objects.list_(client, kind, namespace="default")).items]


def nothing_of_sessions(machine, session):
    left = machine.cli("clean", "--local", "--dry-run").stdout
    return session not in left and not [*(machine.runtime / "pathways").glob(f"{session}*")]


def nothing_left(machine):
    """Return whether no session and no kernel beside the chips has left a file."""
    runtime = machine.runtime / "pathways"
    files = (each for each in runtime.iterdir() if not each.is_dir())
    return not [*files, *(runtime / "kernels").iterdir()]


@pytest.fixture(scope="module")
def added(machine, cluster):
    added = machine.cli("kernel", "add", "--local")
    assert added.returncode == 0, added.stderr
    assert "Python beside the chips (embedded cluster)" in added.stdout
    yield machine
    assert machine.cli("lab", "down", "--local", "--delete-volume").returncode == 0
    # The process behind its kernels waits some seconds for another one.
    wait_until(lambda: not [*(machine.runtime / "pathways" / "kernels").glob("*.lock")])


@pytest.fixture
def beside(added, open_notebook):
    return open_notebook(manager=manager(added))


@pytest.fixture
def link(added, cluster, tmp_path):
    """A line that can be cut, with a kernelspec of its own for the same lab."""
    with Link(cluster) as made:
        image = programs.reference(programs.LAB_IMAGE)
        kubeconfig = str(made.write(tmp_path / "kubeconfig"))
        done = added.cli("kernel", "add", "--kubeconfig", kubeconfig, "--image", image, "--json")
        name = json.loads(done.stdout)["name"]
        yield made, name
        assert added.cli("kernel", "remove", name).returncode == 0


def test_cells_interrupts_prompts_and_restarts_are_those_of_any_kernel(added, beside):
    cell = beside.run("import os; x = 6 * 7; print(x, os.getcwd())")
    assert cell.text.startswith("42 "), cell.shown
    # Its files are the lab's.
    assert str(added.directory / "runtime") in cell.text

    begun = beside.begin("import time; print('begun', flush=True); time.sleep(600)")
    beside.finish(begun, until="begun")
    beside.manager.interrupt_kernel()
    assert beside.finish(begun).error == "KeyboardInterrupt"

    # As a terminal's Ctrl-C comes: a signal for the process here.
    for _ in range(5):
        begun = beside.begin("print('begun', flush=True); time.sleep(600)")
        beside.finish(begun, until="begun")
        os.kill(beside.manager.provisioner.pid, signal.SIGINT)
        assert beside.finish(begun).error == "KeyboardInterrupt"

    asked = beside.client.execute("print('hello', input('who? '))", allow_stdin=True)
    assert beside.client.get_stdin_msg(timeout=60)["content"]["prompt"] == "who? "
    beside.client.input("there")
    assert "hello there" in beside.finish(asked).text

    beside.manager.restart_kernel()
    beside.client.wait_for_ready(timeout=60)
    assert beside.run("print('x' in globals())").text == "False\n"


def test_an_interrupt_that_comes_just_before_a_wait_ends_it(added, beside):
    """As a signal after Python's last look at signals: it is noted, and does not keep the wait from beginning."""
    beside.run("import _thread, time; get_ipython().kernel._send_interrupt_children = _thread.interrupt_main")
    begun = beside.begin("print('begun', flush=True); time.sleep(600)")
    beside.finish(begun, until="begun")
    beside.manager.interrupt_kernel()
    assert beside.finish(begun).error == "KeyboardInterrupt"


def test_its_session_is_a_session_of_this_machine_too(added, beside):
    cell = beside.run(CONNECT)
    assert "tpu 4" in cell.text, cell.shown
    assert "direct, through a unix socket" in cell.text
    (record,) = sessions(added)
    assert record["kernel_id"] == kernel_id(beside)
    assert record["place"].startswith("beside the chips, in pod pathways-lab-")
    assert (record["state"], record["supervisor"]) == ("connected", "")
    assert "beside the chips" in added.cli("sessions").stdout
    # Its supervisor's log is read here, though it is written there.
    log = added.cli("logs", "supervisor", "--session", record["id"])
    assert log.returncode == 0, log.stderr
    # Not a session that has lost its supervisor.
    cleaned = added.cli("clean", "--dry-run", "--local")
    assert "Nothing to clean" in cleaned.stdout, cleaned.stdout
    refused = added.cli("profile", "--session", record["id"])
    assert "Trace it in its notebook" in refused.stderr
    ended = added.cli("sessions", "disconnect", record["id"])
    assert ended.returncode == 0, ended.stderr
    assert "is removed" in ended.stdout
    wait_until(lambda: not sessions(added))
    assert "connected" not in beside.run("%pathways status").text.splitlines()[0]


def test_the_key_of_its_messages_is_in_no_object_of_the_cluster(added, cluster, beside):
    key = json.loads(Path(beside.manager.connection_file).read_text())["key"]
    assert len(key) > 30
    beside.run(CONNECT)

    found = asyncio.run(objects_of_all_kinds(cluster))
    assert {"Pod", "Secret", "Job"} <= {each["kind"] for each in found}
    assert key not in json.dumps(found)


@pytest.mark.thorough
@pytest.mark.parametrize("end", ["shut down", "killed"])
def test_the_end_of_its_process_here_leaves_nothing_but_the_lab(end, added, open_notebook):
    notebook = open_notebook(manager=manager(added))
    pid = int(notebook.run(f"{CONNECT}\nimport os; print('pid', os.getpid())").text.rpartition("pid ")[2])
    behind = near_end(added, notebook)
    if end == "killed":
        notebook.manager.provisioner.process.kill()
    else:
        notebook.manager.shutdown_kernel()
    wait_until(lambda: not psutil.pid_exists(pid) and not sessions(added))
    # It would have been there for the next kernel.
    wait_until(lambda: have_ended([behind]))
    assert nothing_left(added)


@pytest.mark.thorough
def test_a_near_end_that_a_logout_ends_ends_its_kernels(added, open_notebook):
    notebook = open_notebook(manager=manager(added))
    pid = int(notebook.run(f"{CONNECT}\nimport os; print('pid', os.getpid())").text.rpartition("pid ")[2])
    behind, process = near_end(added, notebook), psutil.Process(notebook.manager.provisioner.pid)
    # It reads how the near end has ended when that is over: the order that a busy machine may have.
    process.suspend()
    try:
        behind.terminate()
        wait_until(lambda: have_ended([behind]) and not psutil.pid_exists(pid))
    finally:
        process.resume()
    wait_until(lambda: not notebook.manager.is_alive())
    # No one is needed who would clean up behind it.
    assert processes_here(added) == []
    assert nothing_left(added)


@pytest.mark.thorough
def test_a_near_end_that_is_killed_is_a_kernel_that_has_died(added, open_notebook):
    notebook = open_notebook(manager=manager(added))
    notebook.run(CONNECT)
    (record,) = sessions(added)
    near_end(added, notebook).kill()
    wait_until(lambda: not notebook.manager.is_alive())
    # The relay takes it for a cut. Its successor says that it was none, and no one has to clean up.
    wait_until(lambda: sessions(added) == [])
    wait_until(lambda: nothing_of_sessions(added, record["id"]))
    wait_until(lambda: len(processes_there(added)) <= 1)
    notebook.restart()
    assert notebook.run("print(6 * 7)").text == "42\n"
    assert sessions(added) == []


@pytest.mark.parametrize(
    ("end", "code", "said"), [("os._exit(3)", 3, "exit code 3"), ("os.kill(os.getpid(), 9)", -9, "signal SIGKILL")]
)
def test_a_kernel_that_dies_says_how(end, code, said, added, open_notebook):
    notebook = open_notebook(manager=manager(added))
    notebook.client.execute(f"import os; {end}")
    wait_until(lambda: not notebook.manager.is_alive())
    assert notebook.manager.provisioner.process.returncode == code
    wait_until(lambda: place(added, notebook)["failed"])
    assert said in place(added, notebook)["message"]


@pytest.mark.thorough
def test_the_end_of_the_lab_ends_its_kernels_and_sessions_here_too(added, open_notebook):
    notebook = open_notebook(manager=manager(added))
    notebook.run(CONNECT)
    assert len(sessions(added)) == 1
    behind = near_end(added, notebook)
    assert added.cli("lab", "down", "--local").returncode == 0
    wait_until(lambda: not notebook.manager.is_alive())
    wait_until(lambda: sessions(added) == [])
    # It does not wait for a message that a session has ended.
    wait_until(lambda: have_ended([behind]))


@pytest.mark.thorough
def test_two_kernels_of_a_folder_with_many_files_have_all_of_them(added, machine):
    folder = machine.directory / "many"
    folder.mkdir()
    for number in range(1600):
        (folder / f"{number}.txt").write_text(str(number))
    # A name that means something in a pattern of files to ignore.
    (folder / "large[1].bin").write_bytes(bytes(11_000_000))
    (folder / "large1.bin").write_text("small")
    with contextlib.ExitStack() as stack:
        clients = []
        for starting in (manager(machine), manager(machine)):
            starting.start_kernel(env=machine.environ, cwd=str(folder))
            stack.callback(starting.shutdown_kernel)
            clients.append(starting.client())
            clients[-1].start_channels()
            stack.callback(clients[-1].stop_channels)
        for client in clients:
            client.wait_for_ready(timeout=100)
            said = []
            client.execute_interactive(
                "import os; print(len(os.listdir()), open('1599.txt').read(), open('large1.bin').read())",
                timeout=60,
                output_hook=lambda message, said=said: said.append(message["content"].get("text", "")),
            )
            assert "1601 1599 small" in "".join(said)


def test_the_notebooks_folder_is_there_and_what_changes_is_sent_before_a_cell(added, machine):
    folder = machine.directory / "project"
    (folder / "package").mkdir(parents=True)
    (folder / "package" / "mine.py").write_text("X = 1\n")
    (folder / ".env").write_text("PASSWORD=1\n")
    (folder / "large.bin").write_bytes(bytes(11_000_000))
    starting = manager(machine)
    starting.start_kernel(env=machine.environ, cwd=str(folder))
    client = starting.client()
    client.start_channels()
    client.wait_for_ready(timeout=100)

    def run(code):
        reply = client.execute_interactive(
            code, timeout=60, output_hook=lambda message: said.append(message["content"])
        )
        assert reply["content"]["status"] == "ok", said
        return "".join(each.get("text", "") for each in said)

    try:
        said = []
        assert "[('mine', 1)]" in run(
            "import os; from package import mine; print([('mine', mine.X)]); print(os.listdir())"
        )
        note = place_of(machine, connection_id(starting))["note"]
        assert "The pod has 1 file of" in note
        assert "a secret: .env" in note
        assert "larger than 10.0 MB: large.bin" in note
        (folder / "package" / "mine.py").write_text("X = 22\n")
        (folder / "added.py").write_text("Y = 3\n")
        # Cells that come at once after another one do not look again.
        wait_until(lambda: run("print('is there', os.path.exists('added.py'))").endswith("is there True\n"))
        assert "22 3" in run("import importlib, added; importlib.reload(mine); print(mine.X, added.Y)")
        (folder / "added.py").unlink()
        wait_until(lambda: run("print('is there', os.path.exists('added.py'))").endswith("is there False\n"))
        run("open('result.txt', 'w').close()")
        # Nothing comes back by itself.
        assert not (folder / "result.txt").exists()
    finally:
        client.stop_channels()
        starting.shutdown_kernel()


@pytest.mark.thorough
def test_what_the_notebook_imports_and_the_pod_lacks_is_said(added):
    folder = added.directory / "imports"
    folder.mkdir()
    (folder / "own.py").write_text("")
    packages = added.directory / "packages"
    packages.mkdir()
    (packages / "only_here.py").write_text("")
    cells = ["%matplotlib inline\nimport only_here, own, numpy as np", "from os import path", "not python"]
    notebook = {"cells": [{"cell_type": "code", "source": each} for each in cells]}
    (folder / "mine.ipynb").write_text(json.dumps(notebook))
    starting = manager(added)
    # Its KUBECONFIG makes it another process than that of the other tests.
    environ = {"PYTHONPATH": str(packages), "JPY_SESSION_NAME": str(folder / "mine.ipynb"), "KUBECONFIG": "/nowhere"}
    starting.start_kernel(env={**added.environ, **environ}, cwd=str(folder))
    wait_until(lambda: (place_of(added, connection_id(starting)) or {}).get("ready"))
    note = place_of(added, connection_id(starting))["note"]
    starting.shutdown_kernel()
    assert note.startswith("Not in the pod: only_here. The pod has 1 file")


@pytest.fixture
def in_folder(added, open_notebook):
    """A notebook in a folder, with what it has written here."""
    folder = added.directory / f"results-{os.urandom(3).hex()}"
    folder.mkdir()
    (folder / "sent.txt").write_text("as it was sent")
    return open_notebook(manager=manager(added), directory=folder), folder


def test_files_that_a_cell_has_written_are_fetched(in_folder):
    notebook, folder = in_folder
    notebook.run("%load_ext pathways_jupyter")
    notebook.run(
        "import os, pathlib\nos.makedirs('plots/deep')\n"
        "for name in ('result.csv', 'plots/a.png', 'plots/deep/b.png', 'plots/.hidden', 'plots/c.ipynb'):\n"
        "    pathlib.Path(name).write_text(name)\n"
        "pathlib.Path('large.bin').write_bytes(bytes(range(256)) * 50_000)\n"
        "os.chmod('result.csv', 0o755)"
    )
    shown = notebook.run("%pathways fetch result.csv plots large.bin")
    assert shown.status == "ok", shown.shown
    assert f"Fetched 4 files (12.8 MB) into {folder}: large.bin, plots/a.png, plots/deep/b.png" in shown.text
    assert (folder / "result.csv").read_text() == "result.csv"
    assert os.access(folder / "result.csv", os.X_OK)
    assert (folder / "large.bin").read_bytes() == bytes(range(256)) * 50_000
    assert sorted(os.listdir(folder / "plots")) == ["a.png", "deep"]
    assert sorted(os.listdir(folder)) == ["large.bin", "plots", "result.csv", "sent.txt"]
    # What is here already is not sent again.
    assert "Nothing to fetch: 2 files there already." in notebook.run("%pathways fetch plots/*.png plots/deep").text
    # A name that means something in a pattern.
    notebook.run("pathlib.Path('run[1].txt').write_text('x')")
    assert "Fetched 1 file" in notebook.run("%pathways fetch run[1].txt").text
    assert "PATHS" in (refused := notebook.run("%pathways fetch")).shown
    assert refused.error == "ConfigError"


@pytest.mark.thorough
def test_a_fetch_changes_nothing_where_it_cannot(in_folder, tmp_path):
    notebook, folder = in_folder
    notebook.run("%load_ext pathways_jupyter")
    notebook.run(
        "import os, pathlib\nos.makedirs('elsewhere')\nos.makedirs('out')\n"
        "for name in ('.profile', 'mine.ipynb', '../outside', 'out/x', 'taken', 'fine'):\n"
        "    pathlib.Path(name).write_text(name)"
    )
    for name, why in (
        ("missing.txt", "There is no file missing.txt"),
        ("../outside", "is not in"),
        (".profile", "is hidden"),
        ("mine.ipynb", "is a notebook"),
        ("elsewhere", "There is nothing to fetch"),
    ):
        assert why in notebook.run(f"%pathways fetch {name}").shown
    # What is in the way here, which is not sent.
    (folder / ".gitignore").write_text("/taken\n/out\n")
    (folder / "taken").mkdir()
    (folder / "out").symlink_to(tmp_path)
    assert "taken is a directory here" in notebook.run("%pathways fetch fine taken").shown
    assert "out/x would be written outside of" in notebook.run("%pathways fetch fine out").shown
    assert os.listdir(tmp_path) == []
    notebook.run("os.makedirs('deep/file'); pathlib.Path('deep/file/x').write_text('x')\nos.makedirs('new/deep')")
    notebook.run("pathlib.Path('new/deep/x').write_text('x')")
    (folder / ".gitignore").write_text("/taken\n/out\n/deep\n")
    (folder / "deep").write_text("a file")
    assert "deep is a file here" in notebook.run("%pathways fetch new deep").shown
    assert sorted(os.listdir(folder)) == [".gitignore", "deep", "out", "sent.txt", "taken"]
    gone = notebook.run("os.makedirs('gone'); os.chdir('gone'); os.rmdir('../gone')\n%pathways fetch fine")
    assert "The working directory of this kernel is gone" in gone.shown
    assert gone.error == "ConfigError"


def test_what_a_cell_has_changed_stays_until_it_is_changed_here(in_folder):
    notebook, folder = in_folder
    notebook.run("open('sent.txt', 'w').write('as the cell has it')")
    (folder / "other.txt").write_text("new")
    assert notebook.run("print(open('sent.txt').read(), open('other.txt').read())").text == "as the cell has it new\n"
    # One cell after the other.
    for number in range(10):
        (folder / "sent.txt").write_text(f"as it was changed here {number}")
        assert notebook.run("print(open('sent.txt').read())").text == f"as it was changed here {number}\n"


def test_a_file_whose_name_is_taken_in_the_pod_is_named_and_the_others_are_as_here(added, in_folder):
    notebook, folder = in_folder
    notebook.run("import os; os.remove('sent.txt'); os.mkdir('sent.txt')")
    for text in ("first", "second"):
        (folder / "sent.txt").write_text(text)
        (folder / "z.txt").write_text(text)
        assert notebook.run("print(open('z.txt').read())").text == f"{text}\n"
        assert notebook.run("print(6 * 7)").text == "42\n"
        assert f"Files of {folder} could not be written in the lab: sent.txt: " in place(added, notebook)["note"]
    notebook.run("os.rmdir('sent.txt')")
    assert notebook.run("print(open('sent.txt').read())").text == "second\n"
    wait_until(lambda: place(added, notebook)["note"].startswith("The pod has 2 files"))


@pytest.mark.thorough
def test_an_interrupted_fetch_leaves_nothing_and_a_cut_is_waited_for(added, link, open_notebook):
    line, name = link
    folder = added.directory / f"cut-{os.urandom(3).hex()}"
    folder.mkdir()
    notebook = open_notebook(manager=manager(added, name), directory=folder)
    notebook.run("%load_ext pathways_jupyter")
    notebook.run("import os; open('random.bin', 'wb').write(os.urandom(12_000_000))")
    line.shape(delay=0.02, down=3_000_000)
    running = notebook.begin("%pathways fetch random.bin")
    wait_until(lambda: list(folder.glob(".pathways-fetch-*/0")))
    notebook.manager.interrupt_kernel()
    assert "Fetching was interrupted" in notebook.finish(running).shown
    wait_until(lambda: os.listdir(folder) == [])
    running = notebook.begin("%pathways fetch random.bin")
    wait_until(lambda: list(folder.glob(".pathways-fetch-*/0")))
    line.cut()
    wait_until(lambda: "is cut" in place(added, notebook)["message"])
    line.open()
    assert "Fetched 1 file (12.0 MB)" in notebook.finish(running).text
    assert (folder / "random.bin").stat().st_size == 12_000_000


@pytest.mark.thorough
def test_a_notebook_moves_to_the_chips_and_back_with_its_variables(added, open_notebook):
    notebook = open_notebook(directory=added.directory)
    pid = notebook.manager.provisioner.pid
    shown = notebook.run("%load_ext pathways_jupyter\n%pathways connect --local --tpu tpuv6e:2x2=1 --wait 60")
    assert shown.status == "ok", shown.shown
    notebook.run(
        "import jax, jax.numpy as jnp, os, sys, types\nfrom collections import Counter\nfrom jax import jit\n"
        "from random import randint\nfrom typing import Optional\nfrom jax.numpy import add\nimport xml.dom.pulldom\n"
        "only_here = sys.modules['only_here'] = types.ModuleType('only_here')\n"
        "x = jnp.arange(8.0) * 2\nstep = 41\nheld = open(os.devnull)\n"
        "def double(y): return y * 2\n"
    )
    asked = notebook.begin("%pathways move")
    question = notebook.client.get_stdin_msg(timeout=60)["content"]["prompt"]
    assert question.startswith("Not kept: held is"), question
    assert question.count("Not kept") == 1, question
    notebook.client.input("n")
    assert "Not moved." in notebook.finish(asked).text
    asked = notebook.begin("%pathways move")
    notebook.client.get_stdin_msg(timeout=60)
    notebook.manager.interrupt_kernel()
    assert notebook.finish(asked).error == "KeyboardInterrupt"
    assert "moved-" not in notebook.run("%pathways saved").text
    assert notebook.run("print(x[3], step)").text == "6.0 41\n"
    for where in ("beside the chips (embedded cluster)", "on your machine"):
        begun, later = notebook.begin("%pathways move --yes"), notebook.begin("print('too early')")
        moved = notebook.finish(begun)
        assert moved.error == "KernelMoves", moved.shown
        assert f"The next cell runs {where}, with 2 variables" in moved.shown
        assert "those that define double." in moved.shown or where == "on your machine"
        # The front end learns that it was not run.
        assert "too early" not in notebook.finish(later).text
        until_moved(notebook, where)
        arrived = "jnp.pi > 3, Counter('a'), jit.__name__, randint(7, 7), Optional, add(1, 1), xml.dom.pulldom"
        first = notebook.run(f"print(x[3], step, jax.devices()[0].platform, {arrived})")
        assert first.status == "ok", (first.shown, first.text, notebook.seen[-3:])
        assert "Loaded moved-" in first.text
        assert "6.0 41 tpu True Counter({'a': 1}) jit 7 typing.Optional 2 <module 'xml.dom.pulldom'" in first.text
        assert ("Not imported: only_here" in str(first.outputs)) is (where != "on your machine")
        assert notebook.manager.provisioner.pid == pid
        assert (notebook.run("print(os.getpid())").text == f"{pid}\n") is (where == "on your machine")
        saves = notebook.run("%pathways save kept x\n%pathways saved\n%pathways saved delete kept --yes")
        assert "kept is deleted." in saves.text, saves.shown
        (record,) = sessions(added)
        assert bool(record["place"]) is (where != "on your machine")
        assert json.loads(added.cli("saved", "--local", "--json").stdout) == []
    assert notebook.manager.is_alive()
    notebook.manager.restart_kernel()
    notebook.client.wait_for_ready(timeout=60)
    assert notebook.run("print('x' in globals())").text == "False\n"


@pytest.mark.thorough
def test_a_kernel_that_returns_again_has_the_command_line_of_its_first_return(added, open_notebook):
    notebook = open_notebook(directory=added.directory)
    notebook.run("%load_ext pathways_jupyter\n%pathways connect --local --tpu tpuv6e:2x2=1 --wait 60\nx = 5")
    lines = []
    for where in ("beside the chips", "on your machine") * 2:
        assert notebook.run("%pathways move --yes").error == "KernelMoves"
        until_moved(notebook, where)
        first = notebook.run("print(x)")
        assert first.text.endswith("5\n"), first.shown
        lines.append(psutil.Process(notebook.manager.provisioner.pid).cmdline())
    assert len(lines[3]) == len(lines[1])
    assert sum(map(len, lines[3])) == sum(map(len, lines[1]))


@pytest.mark.thorough
def test_each_cell_that_is_sent_while_a_kernel_becomes_the_one_beside_the_chips_is_answered(added, open_notebook):
    notebook = open_notebook(directory=added.directory)
    notebook.run("%load_ext pathways_jupyter\n%pathways connect --local --tpu tpuv6e:2x2=1 --wait 60\nx = 5")
    assert notebook.run("%pathways move --yes").error == "KernelMoves"
    sent, deadline = [], time.monotonic() + 0.4
    # Over the time in which the kernel ends, and not up to the close of its sockets, where a cell may be lost.
    while time.monotonic() < deadline:
        sent.append(notebook.begin("print(x)"))
        with contextlib.suppress(queue.Empty):
            notebook.client.get_shell_msg(timeout=0.01)
    refused = [notebook.finish(each, timeout=40) for each in sent]
    assert "Run the cell again" in refused[-1].shown
    assert not any(each.text for each in refused)
    until_moved(notebook, "beside the chips")
    assert notebook.run("print(x)").text.endswith("5\n")


@pytest.mark.thorough
def test_a_kernel_beside_the_chips_moves_home_when_it_has_answered_the_cells_that_were_sent(added, link, open_notebook):
    line, name = link
    notebook = open_notebook(manager=manager(added, name))
    assert notebook.run(f"{CONNECT}\nx = 5").status == "ok"
    # A round trip is longer than the silence after which the connections are closed.
    line.shape(delay=0.4)
    assert notebook.run("%pathways move --yes").error == "KernelMoves"
    assert notebook.run("print(x)", timeout=40).error == "KernelMoves"
    line.shape()
    until_moved(notebook, "on your machine")
    home = notebook.run("print(6 * 7)")
    assert home.text.endswith("42\n"), home.shown
    # Without --local, this machine has no account for the embedded cluster's bucket.
    (save,) = set(re.findall(r"%pathways load (moved-\w+)", str(home.outputs)))
    assert added.cli("saved", "delete", save, "--local", "--yes").returncode == 0


MANY_NAMES = "import os; globals().update({f'name_of_a_module_{number}': os.path for number in range(4000)})"
"""More than the system takes as one argument or variable of a program: it starts none."""


@pytest.mark.thorough
@pytest.mark.parametrize("begins", ["here", "beside the chips"])
def test_a_kernel_that_cannot_start_its_program_goes_on_here_and_says_where_its_variables_are(
    begins, added, open_notebook
):
    is_here = begins == "here"
    notebook = open_notebook(directory=added.directory) if is_here else open_notebook(manager=manager(added))
    place = "--local --tpu" if is_here else "--tpu"
    shown = notebook.run(f"%load_ext pathways_jupyter\n%pathways connect {place} tpuv6e:2x2=1 --wait 60\nx = 5")
    assert shown.status == "ok", shown.shown
    old = psutil.Process(notebook.manager.provisioner.pid).cmdline()
    notebook.run(MANY_NAMES)
    assert notebook.run("%pathways move --yes").error == "KernelMoves"
    wait_until(lambda: psutil.Process(notebook.manager.provisioner.pid).cmdline() != old)
    first = notebook.run("print('x' in globals())")
    assert "False" in first.text, first.shown
    said = str(first.outputs)
    assert "could not be started: [Errno 7] Argument list too long" in said, said
    bucket, name = re.search(r"--gcs-bucket (gs://\S+); %pathways load (moved-\w+) brings", said).groups()
    connect = f"%pathways connect --local --tpu tpuv6e:2x2=1 --wait 60 --gcs-bucket {bucket}"
    assert notebook.run(connect).status == "ok"
    assert notebook.run(f"%pathways load {name}\nprint(x)").text.endswith("5\n")
    notebook.run(f"%pathways saved delete {name} --yes")


@pytest.mark.thorough
def test_what_a_move_cannot_load_stays_saved_and_a_module_that_exits_keeps_nothing_back(added, open_notebook):
    folder = added.directory / "moving"
    folder.mkdir()
    (folder / "quits.py").write_text("import os, sys\nif 'HERE' not in os.environ: sys.exit('only here')")
    notebook = open_notebook(directory=folder)
    notebook.run("%load_ext pathways_jupyter\n%pathways connect --local --tpu tpuv6e:2x2=1 --wait 60")
    notebook.run("import os; os.environ['HERE'] = '1'; import quits, jax.numpy as jnp; max, kept = jnp.arange(3.0), 5")
    assert notebook.run("%pathways move --yes").error == "KernelMoves"
    until_moved(notebook, "beside the chips")
    first = notebook.run("print(kept)")
    assert "5\n" in first.text, first.shown
    shown = str(first.outputs)
    assert "Not loaded: max is a name of Python's own" in shown
    assert "Not imported: quits (only here)" in shown
    (name,) = re.findall(r"The save (moved-\w+) stays", shown)[:1]
    values = notebook.run(f"import pathways_jupyter\nprint(pathways_jupyter.current_session().load({name!r})['max'])")
    assert "[0. 1. 2.]" in values.text
    notebook.run(f"%pathways saved delete {name} --yes")


@pytest.mark.thorough
def test_a_notebook_moves_home_although_a_widget_sends_all_the_time(added, open_notebook):
    notebook = open_notebook(manager=manager(added))
    assert notebook.run(f"{CONNECT}\nx = 5").status == "ok"
    assert notebook.run("%pathways move --yes").error == "KernelMoves"
    client, played = notebook.client, {"comm_id": "0" * 32, "data": {"method": "update", "state": {}}}

    def is_home():
        client.shell_channel.send(client.session.msg("comm_msg", played))
        return "ipykernel_launcher" in psutil.Process(notebook.manager.provisioner.pid).cmdline()

    wait_until(is_home)
    assert notebook.run("print(x)").text.endswith("5\n")


@pytest.mark.thorough
def test_a_move_that_is_interrupted_after_its_save_says_where_the_variables_are(added, open_notebook):
    notebook = open_notebook(manager=manager(added))
    assert notebook.run(f"{CONNECT}\nx = 5").status == "ok"
    notebook.run(
        "import pathways_jupyter\nSession = type(pathways_jupyter.current_session())\nend = Session.disconnect\n"
        "def interrupted(*given):\n    end(*given)\n    raise KeyboardInterrupt\nSession.disconnect = interrupted"
    )
    moved = notebook.run("%pathways move --yes")
    notebook.run("Session.disconnect = end; del x")
    assert "Moving was interrupted" in moved.shown
    bucket, name = re.search(r"--gcs-bucket (gs://\S+); %pathways load (moved-\w+) brings", moved.shown).groups()
    assert notebook.run(f"%pathways connect --tpu tpuv6e:2x2=1 --wait 60 --gcs-bucket {bucket}").status == "ok"
    assert notebook.run(f"%pathways load {name}\nprint(x)").text.endswith("5\n")
    notebook.run(f"%pathways saved delete {name} --yes")


def test_it_is_in_the_embedded_cluster_whatever_the_first_cell_says(added, beside):
    """A notebook whose first cell was written for this machine; its bucket is that cluster's as well."""
    shown = beside.run("%load_ext pathways_jupyter\n%pathways connect --local --tpu tpuv6e:2x2=1 --wait 60")
    assert shown.status == "ok", shown.shown
    assert "direct, through a unix socket" in shown.text
    saved = beside.run("x = 5\n%pathways save whatever x")
    assert saved.status == "ok", saved.shown
    assert "whatever" in added.cli("saved", "--local").stdout
    beside.run("%pathways saved delete whatever --yes")


@pytest.mark.thorough
def test_the_end_of_the_embedded_cluster_is_no_cut(added, machine, open_notebook):
    up = machine.cli("local", "up", "--name", "brief", "--tpu", "tpuv6e:2x2=1", "--json")
    kubeconfig = json.loads(up.stdout)["kubeconfig"]
    name = json.loads(added.cli("kernel", "add", "--kubeconfig", kubeconfig, "--name", "brief", "--json").stdout)[
        "name"
    ]
    notebook = open_notebook(manager=manager(added, name))
    assert notebook.run(CONNECT).status == "ok"
    assert machine.cli("local", "down", "--name", "brief", "--yes").returncode == 0
    wait_until(lambda: not notebook.manager.is_alive())
    assert "The kernel is lost: The embedded cluster has ended." in place(added, notebook)["message"]
    wait_until(lambda: not sessions(added))
    assert added.cli("kernel", "remove", name).returncode == 0


@pytest.mark.thorough
def test_a_move_that_has_no_bucket_starts_no_lab(added, cluster, link, tmp_path, open_notebook):
    far, image = str(tmp_path / "kubeconfig"), programs.reference(programs.LAB_IMAGE)
    adding = added.cli("kernel", "add", "--name", "bucketless", "--kubeconfig", far, "--image", image, "--json")
    name = json.loads(adding.stdout)["name"]
    notebook = open_notebook(directory=added.directory)
    connecting = f"%pathways connect --kubeconfig {far} --tpu tpuv6e:2x2=1 --wait 60"
    assert notebook.run(f"%load_ext pathways_jupyter\n{connecting}").status == "ok"
    refused = notebook.run(f"%pathways move {name}")
    assert "this session has none" in refused.shown
    assert "--gcs-bucket" in refused.shown
    assert "bucketless" not in json.dumps(asyncio.run(objects_of_all_kinds(cluster)))
    assert added.cli("kernel", "remove", name).returncode == 0


@pytest.mark.thorough
def test_a_notebook_with_the_slices_of_a_job_does_not_move(added, cluster, open_notebook):
    job = headless("movable")

    async def ask(question, *arguments):
        async with Client(auth.load(str(cluster))) as client:
            await question(client, *arguments, namespace="default")

    asyncio.run(ask(submission.apply, job))
    try:
        notebook = open_notebook(directory=added.directory)
        cell = notebook.run(
            "%load_ext pathways_jupyter\n%pathways connect --job movable --local\n"
            "import jax.numpy as jnp; x = jnp.arange(8.0)"
        )
        assert cell.status == "ok", cell.shown
        refused = notebook.run("%pathways move --yes").shown
        assert "This session has the slices of job movable" in refused
        assert "%pathways load brings what was saved here" in refused
        assert notebook.run("print(x[3], list(x.devices())[0].platform)").text == "3.0 tpu\n"
    finally:
        asyncio.run(ask(jobs.delete, "movable"))


@pytest.mark.thorough
def test_a_second_kernel_and_a_restart_wait_for_no_connection(added, link, open_notebook):
    line, name = link
    first = open_notebook(manager=manager(added, name))
    traffic = line.count()
    second = open_notebook(manager=manager(added, name))
    assert second.run("print(6 * 7)").text == "42\n"
    second.restart()
    assert second.run("print(6 * 7)").text == "42\n"
    assert traffic.connections == 0
    assert first.run("print('still')").text == "still\n"


@pytest.mark.thorough
def test_a_kernel_that_follows_another_is_not_ended_with_what_the_first_has_left(added, open_notebook):
    first = open_notebook(manager=manager(added))
    first.manager.shutdown_kernel()
    second = open_notebook(manager=manager(added))
    # Longer than the process behind both would wait for another kernel.
    time.sleep(near.IDLE_SECONDS + 2)
    assert second.run("print(6 * 7)").text == "42\n"


@pytest.mark.thorough
def test_a_kernel_that_is_shut_down_while_it_starts_does_not_run_on(added, beside):
    wait_until(lambda: len(processes_there(added)) == 2)
    short = manager(added)
    short.start_kernel(env=added.environ, cwd=str(added.directory))
    short.shutdown_kernel(now=True)
    # One that begins and ends after it, so that it would have begun by then.
    longer = manager(added)
    longer.start_kernel(env=added.environ, cwd=str(added.directory))
    client = longer.client()
    client.start_channels()
    client.wait_for_ready(timeout=100)
    client.stop_channels()
    longer.shutdown_kernel()
    wait_until(lambda: len(processes_there(added)) == 2)


@pytest.mark.thorough
def test_widgets_completion_and_the_debugger_work(added, beside):
    made = beside.run("import ipywidgets; slider = ipywidgets.IntSlider(); print(slider.comm.comm_id)")
    update = {"comm_id": made.text.strip(), "data": {"method": "update", "state": {"value": 7}, "buffer_paths": []}}
    client = beside.client
    client.shell_channel.send(client.session.msg("comm_msg", update))
    assert beside.run("print(slider.value)").text == "7\n"

    asked = client.complete("ipywidgets.IntSl", 16)
    while (reply := client.get_shell_msg(timeout=60))["parent_header"].get("msg_id") != asked:
        pass
    assert "IntSlider" in "".join(reply["content"]["matches"])

    def debug(command, **arguments):
        request = {"type": "request", "seq": 1, "command": command, "arguments": arguments}
        message = client.session.msg("debug_request", request)
        client.control_channel.send(message)
        while (reply := client.get_control_msg(timeout=60))["parent_header"].get("msg_id") != message["msg_id"]:
            pass
        return reply["content"]

    assert debug("initialize", clientID="test", adapterID="python")["success"]
    assert debug("attach")["success"]
    assert debug("debugInfo")["body"]["isStarted"]
    assert debug("disconnect")["success"]


def test_a_front_end_that_comes_later_shares_the_kernel(added, beside):
    beside.run("shared = 7")
    second = beside.manager.client()
    second.start_channels()
    second.wait_for_ready(timeout=60)
    try:
        request = second.execute("print(shared)")
        assert second.get_shell_msg(timeout=60)["parent_header"]["msg_id"] == request
        # Both see the output of either.
        assert beside.finish(request).text == "7\n"
    finally:
        second.stop_channels()


@pytest.mark.thorough
def test_a_cut_costs_no_line(added, link, open_notebook):
    line, name = link
    notebook = open_notebook(manager=manager(added, name))
    begun = notebook.begin(
        "import time\nfor number in range(70):\n    print(number, 'x' * 20_000, flush=True); time.sleep(0.1)"
    )
    notebook.finish(begun, until="3 ")
    line.cut()
    wait_until(lambda: "is cut" in place(added, notebook)["message"])
    line.open()
    text = notebook.finish(begun).text
    assert [int(each.split()[0]) for each in text.splitlines() if each][-1] == 69
    assert notebook.run("print('next')").text == "next\n"
    assert place(added, notebook)["message"] == ""
    asleep = notebook.begin("print('asleep', flush=True); time.sleep(600)")
    notebook.finish(asleep, until="asleep")
    notebook.manager.interrupt_kernel()
    assert notebook.finish(asleep).error == "KeyboardInterrupt"


@pytest.mark.thorough
def test_what_is_asked_of_a_session_during_a_cut_is_refused_and_not_done_later(added, link, open_notebook):
    line, name = link
    notebook = open_notebook(manager=manager(added, name))
    assert "tpu 4" in notebook.run(CONNECT).text
    (record,) = sessions(added)
    line.cut()
    wait_until(lambda: "is cut" in place(added, notebook)["message"])
    assert [each["supervisor"] for each in sessions(added)] == ["out of reach"]
    assert "out of reach" in added.cli("sessions").stdout
    for command in (("sessions", "disconnect", record["id"]), ("clean", "--local")):
        done = added.cli(*command)
        assert "ended" not in done.stdout
    refused = added.cli("sessions", "disconnect", record["id"])
    assert refused.returncode == 1
    assert f"Session {record['id']} is beside the chips, and the connection to its pod is cut." in refused.stderr
    assert "Try again when the line is back." in refused.stderr
    # Another kernel says what it waits for.
    second = manager(added, name)
    second.start_kernel(env=added.environ, cwd=str(added.directory))
    wait_until(lambda: "this one waits for it" in (place_of(added, connection_id(second)) or {}).get("message", ""))
    line.open()
    wait_until(lambda: place_of(added, connection_id(second))["ready"])
    second.shutdown_kernel()
    wait_until(lambda: [(each["state"], each["supervisor"]) for each in sessions(added)] == [("connected", "")])
    assert notebook.run("print(float(jax.numpy.ones(8).sum()))").text == "8.0\n"


@pytest.mark.thorough
def test_credentials_that_expire_during_a_cut_are_waited_for(added, link, cluster, open_notebook, tmp_path):
    line, name = link
    token = Token.of(cluster, tmp_path / "token")
    token.give(tmp_path / "kubeconfig")
    notebook = open_notebook(manager=manager(added, name))
    begun = notebook.begin("import time\nfor number in range(60):\n    print(number, flush=True); time.sleep(0.1)")
    before = notebook.finish(begun, until="3\n").text
    line.cut()
    # Before the message: no attempt that has the token still is under way when the line is back.
    token.revoke()
    wait_until(lambda: "is cut" in place(added, notebook)["message"])
    line.open()
    wait_until(lambda: "credentials" in place(added, notebook)["message"])
    token.renew()
    assert (before + notebook.finish(begun).text).split() == [str(number) for number in range(60)]
    wait_until(lambda: place(added, notebook)["message"] == "")


def test_a_pod_that_cannot_start_says_why(added, machine):
    done = machine.cli("kernel", "add", "--local", "--name", "broken", "--image", "nowhere/lab:7", "--json")
    name = json.loads(done.stdout)["name"]
    starting = manager(machine, name)
    starting.start_kernel(env=machine.environ, cwd=str(machine.directory))
    try:
        wait_until(lambda: not starting.is_alive())
        assert starting.provisioner.process.returncode == 1
        place = place_of(machine, connection_id(starting))
        assert place["failed"]
        assert "its image cannot be pulled (nowhere/lab:7)" in place["message"]
    finally:
        starting.shutdown_kernel(now=True)
        machine.cli("kernel", "remove", name)
        machine.cli("lab", "down", "--local", "--name", "broken", "--delete-volume")


@pytest.mark.thorough
def test_while_no_node_takes_the_pod_the_kernel_says_so_and_starts_once_one_does(added, cluster):
    name = json.loads(added.cli("kernel", "add", "--local", "--name", "waits", "--json").stdout)["name"]
    starting = manager(added, name)

    async def cordon(on):
        async with Client(auth.load(str(cluster))) as client:
            nodes = (await objects.list_(client, NODES)).items
            for each in nodes:
                await objects.patch(client, NODES, each["metadata"]["name"], {"spec": {"unschedulable": on}})

    asyncio.run(cordon(True))
    try:
        starting.start_kernel(env=added.environ, cwd=str(added.directory))
        place = lambda: place_of(added, connection_id(starting)) or {}  # noqa: E731
        wait_until(lambda: "node(s) were unschedulable" in place().get("message", ""))
        assert place()["failed"] is False
        asyncio.run(cordon(False))
        wait_until(lambda: place()["ready"])
        assert place()["message"] == ""
    finally:
        asyncio.run(cordon(False))
        starting.shutdown_kernel()
        added.cli("kernel", "remove", name)
        added.cli("lab", "down", "--local", "--name", "waits", "--delete-volume")


def test_kernelspecs_are_listed_and_removed(added, machine):
    listed = json.loads(machine.cli("kernel", "list", "--json").stdout)
    assert [each["name"] for each in listed] == [NAME]
    spec = json.loads(Path(listed[0]["path"]).read_text())
    # What VS Code reads.
    assert spec["argv"][1:5] == ["-m", "pathways_jupyter.kernel", "-f", "{connection_file}"]
    assert spec["interrupt_mode"] == "message"
    missing = machine.cli("kernel", "remove", "other")
    assert missing.returncode == 1
    assert "There is no kernel 'other'" in missing.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("program", ["nbconvert", "papermill"])
def test_a_program_that_runs_notebooks_uses_it(program, added, machine, tmp_path):
    notebook, ran = machine.directory / "small.ipynb", tmp_path / "ran.ipynb"
    kernelspec = {"kernelspec": {"name": NAME, "display_name": "", "language": "python"}}
    cell = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    cells = [
        {**cell, "source": "factor = 7", "metadata": {"tags": ["parameters"]}},
        {**cell, "source": f"{CONNECT}\nfor n in range(100): print(n * factor)"},
    ]
    notebook.write_text(json.dumps({"cells": cells, "metadata": kernelspec, "nbformat": 4, "nbformat_minor": 4}))
    words = {
        "nbconvert": ["jupyter", "nbconvert", "--to", "notebook", "--execute", "--output", str(ran), str(notebook)],
        "papermill": ["papermill", str(notebook), str(ran), "-p", "factor", "11"],
    }
    done = machine.python("-m", *words[program])
    assert done.returncode == 0, done.stderr
    outputs = json.dumps(json.loads(ran.read_text())["cells"][-1]["outputs"])
    assert all(f"{n * (11 if program == 'papermill' else 7)}\\n" in outputs for n in range(100))
    # Its end is the kernel's, and the session's with it.
    wait_until(lambda: not sessions(added))


@pytest.mark.thorough
def test_an_interrupt_reaches_a_cell_whose_output_fills_the_line(added, link, open_notebook):
    line, name = link
    notebook = open_notebook(manager=manager(added, name))
    line.shape(delay=0.05, down=2_500_000)
    begun = notebook.begin(
        "import time\nprint('begun')\nfor number in range(1000):\n    print('x' * 100_000); time.sleep(0.01)\n"
        "    if number == 200: print('enough')\n"
    )
    notebook.finish(begun, until="begun")
    notebook.manager.interrupt_kernel()
    # 20 MB or more are before its end, and none is lost.
    cell = notebook.finish(begun)
    assert cell.error == "KeyboardInterrupt"
    assert "enough" not in cell.text
    assert notebook.run("print('next')").text == "next\n"
