"""``%pathways save``, ``load`` and ``saved``: variables of one kernel, in the next."""

import json
import re
import socket

import pytest
from waits import wait_until

pytestmark = pytest.mark.timeout(180)

CONNECT = "%pathways connect --local --tpu tpuv6e:2x2=1"
STATE = """
import jax, jax.numpy as jnp
w = jax.device_put(jnp.arange(8.0), jax.devices()[2])
state, lock = {"w": w, "step": 3}, __import__("threading").Lock()
"""
FROM_OUTSIDE = """
from pathways_jupyter.session import client
from pathways_jupyter.session.protocol import Method
import pathways_jupyter
session = pathways_jupyter.current_session()
since = session.event_count
client.request(session.record, Method.RECONNECT, patience=60)
next(event for event in session.follow(since) if event.data.get("state") == "resuming")
"""
INTERRUPT_THE_SAVE = """
import os, signal
from pathways_jupyter.base import tasks
abandonable = tasks.abandonable
def interrupted(*arguments, **options):
    tasks.abandonable = abandonable
    os.kill(os.getpid(), signal.SIGINT)
    return abandonable(*arguments, **options)
tasks.abandonable = interrupted
%pathways {command}
"""
HIDDEN = """
import functools
@functools.lru_cache
def ones(count):
    return jnp.ones(count)
assert ones(3).shape == (3,)
"""


@pytest.mark.thorough
def test_variables_of_one_kernel_are_set_in_the_next(cluster, machine, notebook):
    assert notebook.run("%load_ext pathways_jupyter").status == "ok"
    assert "no saves" in notebook.run("%pathways saved").text
    assert "This notebook is not connected." in notebook.run("%pathways save friday").shown
    assert notebook.run(CONNECT).status == "ok"
    assert "no saves" in notebook.run("%pathways saved").text
    assert notebook.run(STATE).status == "ok"
    assert "There is no variable weights." in notebook.run("%pathways save friday weights").shown
    assert "lock is a _thread.lock" in notebook.run("%pathways save friday lock").shown
    for command, said in (("save friday", "Saving was interrupted."), ("suspend", "Suspending was interrupted.")):
        ran = notebook.run(INTERRUPT_THE_SAVE.replace("{command}", command))
        assert (ran.error, said in ran.shown) == ("SessionError", True), ran.shown
        assert "no saves" in notebook.run("%pathways saved").text
        assert "connected" in notebook.run("%pathways status").text
    ran = notebook.run("%pathways save friday")
    assert "Saved as friday: 2 variables" in ran.text, ran.shown
    assert "Left out: lock is a _thread.lock" in ran.text
    assert "Suspended: 1 array (32 bytes) saved" in notebook.run("%pathways suspend").text
    saved = "import pathways_jupyter; print(pathways_jupyter.current_session().record.saved)"
    assert "1 array (32 bytes) in gs://" in notebook.run(saved).text
    status = notebook.run("%pathways status").text
    assert "suspended" in status
    assert re.search(r"1 array \(32 bytes\) in gs://\S+/suspended-\w+", status), status
    used = ("w + 1", "print(w)", "jnp.sum(w)", "import numpy; numpy.asarray(w)", "jnp.arange(9.0)")
    for cell in (*used, "jax.device_put(1.0)"):
        # The lines before it are not where it was used.
        ran = notebook.run(f"before = 1\n{cell}")
        assert re.match(r"\w+Error: Session \w+ is suspended since \d+:\d+:\d+, with 1 array \(32 b", ran.shown), cell
        assert f"Line 2: {cell}" in ran.shown, ran.shown
        assert "%pathways resume brings them back" in ran.shown
        assert len(ran.shown.splitlines()) == 3, ran.shown
        assert ran.text == ""
    for cell in ("w", "{'w': w}"):
        # IPython fails to show the value, after the cell has run.
        ran = notebook.run(cell)
        assert re.match(r"RuntimeError: Session \w+ is suspended since", ran.shown), ran.shown
        assert len(ran.shown.splitlines()) == 3, ran.shown
    for command in ("suspend", "save friday", "load friday", "env", "profile start", "reconnect"):
        shown = notebook.run(f"%pathways {command}").shown
        assert "is suspended since" in shown, command
        assert "%pathways resume brings them back" in shown, command
    assert "is suspended since" in notebook.run(CONNECT.replace("=1", "=2")).shown
    for answer, result in (("n", "%pathways resume brings them back"), ("y", "Resumed: 1 array (32 bytes)")):
        # The notebook's first cell is run again.
        request = notebook.begin(CONNECT)
        asked = notebook.client.get_stdin_msg(timeout=60)["content"]["prompt"]
        assert re.search(r"is suspended since [\d:]+, with 1 array \(32 bytes\) saved\. Resume\?", asked), asked
        notebook.client.input(answer)
        ran = notebook.finish(request)
        assert result in ran.shown + ran.text
    assert "28.0 True" in notebook.run("print(w.sum(), state['w'] is w)").text
    assert notebook.run(saved).text.strip() == "None"
    assert "is not suspended" in notebook.run("%pathways resume").shown
    assert notebook.run("%pathways suspend").status == "ok"
    assert notebook.run(FROM_OUTSIDE).status == "ok"
    ran = notebook.run("print(w.sum(), state['w'] is w)")
    assert "28.0 True" in ran.text, ran.shown
    assert "Resumed: 1 array (32 bytes)" in ran.text
    assert notebook.run("%pathways suspend").status == "ok"
    assert notebook.run(FROM_OUTSIDE).status == "ok"
    assert "Resumed: 1 array (32 bytes)" in notebook.run("%pathways resume --wait 60").text
    assert notebook.run(HIDDEN).status == "ok"
    ran = notebook.run("%pathways suspend --yes")
    assert "Not kept: ones: float32[3], held by the cache of ones." in ran.text, ran.shown
    assert "Resumed: 1 array (32 bytes)" in notebook.run("%pathways resume").text
    notebook.run("%pathways disconnect")
    assert notebook.run("%reset -f").status == "ok"
    assert notebook.run("%load_ext pathways_jupyter").status == "ok"
    assert notebook.run(CONNECT).status == "ok"
    ran = notebook.run("%pathways saved")
    assert "friday" in ran.text, ran.shown
    assert "w, state" in ran.text
    (listed,) = json.loads(machine.cli("saved", "--json").stdout)
    assert (listed["name"], listed["variables"]) == ("friday", ["w", "state"])
    assert "friday" in machine.cli("saved", "--local").stdout
    assert "Nothing to clean" in machine.cli("clean", "--local").stdout
    assert "Loaded friday: w, state." in notebook.run("%pathways load friday").text
    ran = notebook.run("import jax; print(w.sum(), state['w'] is w, state['step'], w.device == jax.devices()[2])")
    assert "28.0 True 3 True" in ran.text, ran.shown
    assert "friday is deleted." in machine.cli("saved", "delete", "friday", "--yes").stdout
    assert machine.cli("saved", "--local").stdout == "There are no saves in the bucket.\n"
    assert "none of that name" in notebook.run("%pathways saved delete friday").shown
    missing = notebook.run("%pathways load friday").shown
    assert "none of that name" in missing
    assert "%pathways saved lists them." in missing
    notebook.run("%pathways disconnect")
    ran = notebook.run(f"{CONNECT} --suspend-after 3s\nimport jax; w = jax.device_put(1.5, jax.devices()[1])")
    assert ran.status == "ok", ran.shown
    wait_until(lambda: "suspended" in machine.cli("sessions", "--json").stdout)
    assert "Nothing was computed for" in notebook.run("%pathways events").text
    assert "Resumed: 1 array" in notebook.run("%pathways resume").text
    assert "1.5" in notebook.run("print(w)").text
    assert notebook.run("%pathways suspend").status == "ok"
    ran = notebook.run(f"{FROM_OUTSIDE}\nsession.saves.delete(session.suspender.save_name)")
    assert ran.status == "ok", ran.shown
    assert "The arrays of the suspended session are not back: suspended-" in notebook.run("print('a cell')").text
    assert "there is none of that name" in notebook.run("%pathways resume").shown
    # The session has its proxy, and not its arrays: they are not in the save any more.
    over = notebook.run("%pathways disconnect").text
    assert re.search(r"arrays were saved as (\S+)\. Now: \1 cannot be found: there is none of that name", over), over


@pytest.mark.thorough
def test_a_call_on_a_thread_keeps_the_session_in_use(cluster, notebook, tmp_path):
    ended = tmp_path / "ended"
    ran = notebook.run(
        f"%load_ext pathways_jupyter\n{CONNECT} --suspend-after 2s\nimport pathlib, threading, time, pathways_jupyter\n"
        "@pathways_jupyter.colocated.function\ndef long():\n    import time; time.sleep(7)\n"
        "def works():\n    long()\n    session = pathways_jupyter.current_session()\n"
        "    kinds = {event.kind for event in session.events()} & {'unused', 'not-suspended'}\n"
        f"    pathlib.Path({str(ended)!r}).write_text(f'{{session.state}} {{kinds}}')\n"
        "threading.Thread(target=works).start()"
    )
    assert ran.status == "ok", ran.shown
    asked = notebook.begin("%pathways suspend")
    question = notebook.client.get_stdin_msg(timeout=60)["content"]["prompt"]
    assert question.endswith("can be kept, but not: what a call on the hosts computes. Suspend? [y/N] "), question
    notebook.client.input("n")
    assert "Not suspended." in notebook.finish(asked).text
    wait_until(ended.exists)
    wait_until(ended.read_text)
    assert ended.read_text() == "connected set()"


@pytest.mark.thorough
def test_a_suspended_session_and_its_save_know_of_each_other(cluster, machine, notebook):
    """A suspend without arrays leaves no save, and a session that ends while it is suspended leads to its own."""
    assert notebook.run(f"%load_ext pathways_jupyter\n{CONNECT}\nimport jax").status == "ok"
    assert "0 arrays" in notebook.run("%pathways suspend").text
    assert "no saves" in notebook.run("%pathways saved").text
    assert "Resumed: 0 arrays" in notebook.run("%pathways resume").text
    assert notebook.run("x = jax.numpy.arange(4.0)\n%pathways suspend").status == "ok"
    (name,) = [each["name"] for each in json.loads(machine.cli("saved", "--json").stdout)]
    refused = notebook.run(f"%pathways saved delete {name} --yes").shown
    assert "is suspended, and its arrays are nowhere else." in refused
    assert "pathways-jupyter sessions disconnect" in refused
    assert machine.cli("sessions", "disconnect").returncode == 0
    # Known to the kernel, perhaps, only once the next cell has begun.
    ended = notebook.run("1").text + notebook.run("2").text
    assert f"Its arrays stay in the save {name}: %pathways load {name}, in another session." in ended
    assert f"%pathways load {name} sets the variables that had them" in notebook.run("x + 1").shown
    assert notebook.run(f"{CONNECT}\n%pathways load {name}\nprint(x.sum())").text.endswith("6.0\n")
    notebook.run("%pathways suspend")
    (own,) = {each["name"] for each in json.loads(machine.cli("saved", "--json").stdout)} - {name}
    assert machine.cli("saved", "delete", name, "--yes").returncode == 0
    # As another machine of this user's does, or gcloud.
    deleted = f"import pathways_jupyter\npathways_jupyter.current_session().saves.delete({own!r})"
    assert notebook.run(deleted).status == "ok"
    refused = notebook.run("%pathways resume")
    assert "there is none of that name" in refused.shown
    assert "%pathways disconnect ends the session" in refused.shown
    assert json.loads(machine.cli("sessions", "--json").stdout)[0]["state"] == "suspended"
    assert "there is none of that name" in notebook.run("%pathways disconnect").text
    lost = notebook.run("x + 1").shown
    assert "Run the cells that make it again" in lost
    assert "%pathways load" not in lost


@pytest.mark.thorough
def test_saved_looks_where_the_session_saves(cluster, machine, notebook):
    """The cluster's kubeconfig elsewhere: nothing says that the bucket is that of a cluster on this machine."""
    (machine.directory / "copied").write_bytes(cluster.read_bytes())
    # Without it Google's library looks for a metadata server for some seconds.
    notebook.run("import os; os.environ |= {'NO_GCE_CHECK': 'true'}")
    line = "%pathways connect --kubeconfig copied --gcs-bucket gs://pathways-local --tpu tpuv6e:2x2=1"
    assert notebook.run(f"%load_ext pathways_jupyter\n{line}\nq = 1").status == "ok"
    answers = [notebook.run(f"%pathways {command}") for command in ("save q1 q", "saved", "save q1 q", "saved")]
    found = {"There are no Google credentials on this machine." in each.shown for each in answers}
    assert len(found) == 1, [each.shown or each.text for each in answers]
    assert found == {True} or "q1" in answers[1].text


NIGHT = """
import os; os.environ["JPY_SESSION_NAME"] = "work/night.ipynb"
%load_ext pathways_jupyter
"""
MODEL = """
import jax, jax.numpy as jnp
from flax import nnx
model = nnx.Linear(3, 2, rngs=nnx.Rngs({seed}))
kept = model
"""
OF_ANOTHER = """
import json, time, pathways_jupyter
from pathways_jupyter.base.google import open_bucket
names = ("In", "Out", "_oh", "get_ipython", "len", "print", "jnp", "Linear", "fine")
index = {
    "format": 1, "content": "0" * 32, "saved": time.time(), "variables": dict.fromkeys(names, 5), "arrays": [],
    "notebook": "\x1b[31mred\x1b]0;title\x07\u202egnp.exe\\nFAKE: all saves are fine", "files": {},
}
place = f"{pathways_jupyter.current_session().saves._base}/other"
open_bucket().pipe_file(f"{place}/index.json", json.dumps(index).encode())
from flax.nnx import Linear
"""


@pytest.mark.thorough
def test_the_morning_after_a_notebook_goes_on_with_its_last_save(cluster, machine, notebook, open_notebook):
    assert notebook.run(f"{NIGHT}{CONNECT}").status == "ok"
    assert notebook.run(f"{MODEL.format(seed=0)}y, step = model(jnp.ones(3)), 7").status == "ok"
    ran = notebook.run("%pathways load --last")
    assert "This notebook has no save in the bucket." in ran.shown
    assert "Saved as night: 3 variables" in notebook.run("%pathways save night model y step").text
    # It has saved that itself.
    assert notebook.run("%pathways disconnect").status == "ok"
    notebook.close()
    morning = open_notebook()
    has = re.compile(r"This notebook has a save from \d\d:\d\d:\d\d, 3 variables, [\d.]+ \w+: %pathways load --last")
    assert morning.run(NIGHT).status == "ok"
    ran = morning.run("%pathways resume")
    assert ran.error == "SessionError"
    assert has.search(ran.shown), ran.shown
    ran = morning.run("%pathways saved")
    assert has.search(ran.text), ran.shown
    assert morning.run(CONNECT).status == "ok"
    assert has.search(morning.wait_for("This notebook has a save"))
    assert morning.run(MODEL.format(seed=1)).status == "ok"
    ran = morning.run("%pathways load --last")
    assert "Loaded night: model, y, step." in ran.text, ran.shown
    assert "Put into the objects that were here: model." in ran.text
    ran = morning.run("print(model is kept, bool((model(jnp.ones(3)) == y).all()), step)")
    assert "True True 7" in ran.text, ran.shown
    assert morning.run("model = nnx.Linear(3, 4, rngs=nnx.Rngs(1)); kept = model; del y").status == "ok"
    ran = morning.run("%pathways load night")
    assert "Loaded night: y, step." in ran.text, ran.shown
    assert "Not loaded: model.bias.value is float32[4] here and float32[2] in the save." in ran.text
    assert "Replaced: step." in ran.text
    assert "True" in morning.run("print(model is kept)").text
    assert morning.run("del model").status == "ok"
    assert "Dictionaries of leaves, as no object of their names was here: model (Linear)." in (
        morning.run("%pathways load night").text
    )
    assert "load takes the name of a save, or --last." in morning.run("%pathways load").shown
    assert "load takes the name of a save, or --last." in morning.run("%pathways load night --last").shown
    assert morning.run("%pathways saved delete night --yes").status == "ok"
    morning.run("%pathways disconnect")


@pytest.mark.thorough
def test_who_writes_to_the_bucket_sets_values_and_nothing_else(cluster, machine, notebook):
    assert notebook.run(f"{NIGHT}{CONNECT}").status == "ok"
    assert notebook.run(f"{MODEL.format(seed=0)}{OF_ANOTHER}").status == "ok"
    ran = notebook.run("%pathways load other")
    assert "Loaded other: fine." in ran.text, ran.shown
    for name in ("In", "Out", "_oh", "get_ipython"):
        assert f"Not loaded: {name} is a name of IPython's own." in ran.text
    for name in ("len", "print"):
        assert f"Not loaded: {name} is a name of Python's own." in ran.text
    for name in ("jnp", "Linear"):
        assert f"Not loaded: {name} is a function, a class or a module here." in ran.text
    ran = notebook.run("len([1]), fine, jnp.ones(2).shape, In[-1][:4], get_ipython() is not None")
    assert "(1, 5, (2,), 'len(', True)" in ran.text, ran.shown
    for shown in (notebook.run("%pathways saved").text, machine.cli("saved", "--local").stdout):
        assert not set("\x1b\x07\u202e") & set(shown)
        (row,) = [line for line in shown.splitlines() if "FAKE" in line]
        assert row.startswith("other ")
    assert notebook.run("%pathways saved delete other --yes").status == "ok"
    notebook.run("%pathways disconnect")


@pytest.mark.thorough
@pytest.mark.parametrize("command", ["saved --gcs-bucket gs://b", "saved delete x --yes --gcs-bucket gs://b"])
def test_an_interrupt_ends_a_wait_for_a_bucket_that_does_not_answer(cluster, notebook, command):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        notebook.run(f"import os; os.environ['STORAGE_EMULATOR_HOST'] = 'http://127.0.0.1:{port}'")
        request = notebook.begin(f"%load_ext pathways_jupyter\n%pathways {command}")
        silent.settimeout(60)
        with silent.accept()[0]:
            notebook.manager.interrupt_kernel()
            # It would be asked for minutes.
            ran = notebook.finish(request, timeout=30)
    assert ran.error == "KeyboardInterrupt", ran.shown
    assert notebook.run("print(1)").text.strip() == "1"


@pytest.mark.thorough
def test_arrays_that_were_lost_with_their_slice_are_named_and_the_others_kept(cluster, notebook):
    connect = CONNECT.replace("=1", "=2")
    assert notebook.run(f"%load_ext pathways_jupyter\n{connect}").status == "ok"
    notebook.run(
        "import jax, jax.numpy as jnp\n"
        "lost, kept = (jax.device_put(jnp.arange(4.0), jax.devices()[index]) for index in (0, 4)); print(kept)"
    )
    assert notebook.run("%pathways elastic inject slice-down 0").status == "ok"
    notebook.wait_for("Slice 0")
    assert "lost was on a slice that went down, and is lost." in notebook.run("%pathways save one lost").shown
    some = notebook.run("%pathways save two")
    assert "Left out: lost was on a slice that went down, and is lost." in some.text, some.shown
    request = notebook.begin("%pathways suspend")
    asked = notebook.client.get_stdin_msg(timeout=60)["content"]["prompt"]
    assert "1 array (16 bytes)" in asked
    assert "but not: lost was on a slice that went down, and is lost. Suspend?" in asked
    notebook.client.input("n")
    assert "Not suspended." in notebook.finish(request).text
    # The question holds nothing.
    assert "Suspended: 1 array (16 bytes)" in notebook.run("del lost\n%pathways suspend").text
    notebook.run("%pathways disconnect")


LONG = """
import jax, jax.numpy as jnp
w = jnp.ones((160, 160))
later = jax.jit(lambda w: jax.lax.fori_loop(0, 1_000_000, lambda _, each: each @ each * 1e-3, w))(w)
"""


@pytest.mark.thorough
def test_a_suspend_or_a_save_that_waits_for_a_computation_says_so_and_can_be_interrupted(cluster, notebook):
    assert notebook.run(f"%load_ext pathways_jupyter\n{CONNECT}{LONG}").status == "ok"
    for command in ("suspend", "save long"):
        first, request = len(notebook.seen), notebook.begin(f"%pathways {command}")
        notebook.wait_for("wait for what is being computed", since=first)
        notebook.manager.interrupt_kernel()
        ran = notebook.finish(request)
        assert "was interrupted" in ran.shown, ran.shown
    assert "connected" in notebook.run("%pathways status").text
    notebook.run("%pathways disconnect")


INTERRUPTED_RUN = """
import jax, jax.numpy as jnp, numpy as np
from pathways_jupyter import elastic
def batches():
    for number in range(60):
        if number == 15:
            raise KeyboardInterrupt
        yield np.ones((8, 4), np.float32)
elastic.train_loop(lambda w, batch: (w * 0.9, {"x": batch.mean()}), jnp.ones(4), batches(), steps=60)
"""


@pytest.mark.thorough
def test_an_interrupted_elastic_run_leaves_nothing_that_a_suspend_asks_about(cluster, notebook):
    assert notebook.run(f"%load_ext pathways_jupyter\n{CONNECT}").status == "ok"
    assert notebook.run(INTERRUPTED_RUN).error == "KeyboardInterrupt"
    assert "Suspended:" in notebook.run("%pathways suspend").text
    notebook.run("%pathways disconnect")


@pytest.mark.thorough
def test_a_resume_that_got_fewer_slices_asks_and_gets_the_others_later(cluster, notebook, open_notebook):
    connect = CONNECT.replace("=1", "=2 --at-least 1")
    assert notebook.run(f"%load_ext pathways_jupyter\n{connect}").status == "ok"
    notebook.run(
        "import jax, numpy as np\n"
        "mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 4), ('slice', 'chip'))\n"
        "w = jax.device_put(np.arange(6.0), jax.NamedSharding(mesh, jax.P('slice')))\n"
        "far = jax.device_put(7.0, jax.devices()[6])\n"
    )
    assert notebook.run("%pathways suspend --yes").status == "ok"
    holder = open_notebook()
    assert holder.run(f"%load_ext pathways_jupyter\n{CONNECT}").status == "ok"
    request = notebook.begin("%pathways resume")
    asked = notebook.client.get_stdin_msg(timeout=60)["content"]["prompt"]
    assert "cannot be on 1 slice, and stay saved: far: float32[] with a chip of its own." in asked, asked
    notebook.client.input("n")
    assert "Not resumed." in notebook.finish(request).text
    holder.run("%pathways disconnect")
    ran = notebook.run("%pathways resume\nprint(len(jax.devices()), w.sum(), far)")
    assert "Resumed: 2 arrays" in ran.text, ran.shown
    assert "8 15.0 7.0" in ran.text
    notebook.run("%pathways disconnect")


@pytest.mark.thorough
def test_an_interrupted_resume_is_not_called_a_reconnect(cluster, notebook, open_notebook):
    assert notebook.run(f"%load_ext pathways_jupyter\n{CONNECT}{STATE}").status == "ok"
    assert notebook.run("%pathways suspend --yes").status == "ok"
    holder = open_notebook()
    assert holder.run(f"%load_ext pathways_jupyter\n{CONNECT.replace('=1', '=2')}").status == "ok"
    request = notebook.begin("%pathways resume --wait")
    notebook.wait_for("holds 2")
    notebook.manager.interrupt_kernel()
    ran = notebook.finish(request)
    assert re.search(r"Resuming was interrupted; session \w+ has no proxy\.", ran.shown), ran.shown
    assert "%pathways resume tries again." in ran.shown
    assert any("Not resumed" in each["data"].get("text/html", "") for each in notebook.displays.values())
    holder.run("%pathways disconnect")
    ran = notebook.run("%pathways resume")
    assert "Resumed: 1 array" in ran.text, ran.shown
    notebook.run("%pathways disconnect")
