"""Sessions with a relay outlive interruptions of the network; a training loop neither repeats nor skips a step."""

from __future__ import annotations

import json
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import psutil
import pytest
from plugin_tokens import Token
from waits import wait_until

from benchmarks.link import Link
from pathways_jupyter.session import client
from pathways_jupyter.session.protocol import Method
from pathways_jupyter.session.registry import SessionRecord

pytestmark = pytest.mark.timeout(300)

DEADLINE = 90.0

TRAIN = """
import pathlib, time
import jax, jax.numpy as jnp

step = jax.jit(lambda value: value + 1)
value, steps = jnp.zeros((), "int32"), 0
while not pathlib.Path({stop!r}).exists():
    value, steps = step(value), steps + 1
    assert int(value) == steps
    print(steps, file=open({progress!r}, "a"), flush=True)
    time.sleep(0.02)
print(f"trained {{steps}} {{int(value)}}")
"""


class Training:
    """A cell that trains while the test does things to the network."""

    def __init__(self, notebook, directory: Path, path: Path) -> None:
        self.notebook = notebook
        self.path = path
        self.log = Path(self.record["log"])
        self.progress, self.stop = directory / "progress", directory / "stop"
        self.progress.touch()
        self.request = notebook.begin(TRAIN.format(stop=str(self.stop), progress=str(self.progress)))
        self.advances()

    @property
    def record(self) -> dict:
        """The session's record."""
        return json.loads(self.path.read_text())

    def enters(self, state: str) -> None:
        """Wait until the session is in a state."""
        deadline = time.monotonic() + DEADLINE
        while self.record["state"] != state:
            assert time.monotonic() < deadline, f"{self.record['state']} instead of {state}"
            time.sleep(0.01)

    @property
    def steps(self) -> int:
        return self.progress.read_bytes().count(b"\n")

    def advances(self, steps: int = 3) -> None:
        """Wait until the loop has made some more steps."""
        wanted, deadline = self.steps + steps, time.monotonic() + DEADLINE
        while self.steps < wanted:
            assert time.monotonic() < deadline, f"no step after {self.steps}; {self.log.read_text()[-4000:]}"
            time.sleep(0.01)

    def finish(self) -> int:
        """Stop the loop; how many steps it has made."""
        self.stop.touch()
        cell = self.notebook.finish(self.request, timeout=DEADLINE)
        assert cell.status == "ok", cell.shown
        _, steps, value = next(line for line in cell.text.splitlines() if line.startswith("trained")).split()
        assert steps == value
        assert int(steps) == self.steps
        return int(steps)


@pytest.fixture
def link(cluster):
    with Link(cluster) as made:
        yield made


@pytest.fixture
def token(cluster, tmp_path) -> Token:
    """The token that the kubeconfig's plugin gives."""
    return Token.of(cluster, tmp_path / "token")


@pytest.fixture
def kubeconfig(link, token, tmp_path) -> Path:
    """A kubeconfig that leads through `link`, with a plugin that gives the token."""
    path = link.write(tmp_path / "kubeconfig")
    token.give(path)
    return path


@pytest.fixture
def notebook(cleared_notebook):
    return cleared_notebook


@pytest.fixture
def training(notebook, machine, kubeconfig, tmp_path) -> Training:
    connected = notebook.run(
        "%load_ext pathways_jupyter\n"
        f"%pathways connect --tpu tpuv6e:2x2=1 --wait 60 --kubeconfig {kubeconfig}\n"
        "import pathways_jupyter\nprint(f'session {pathways_jupyter.current_session().id}')"
    )
    assert connected.status == "ok", connected.shown
    (session,) = (line.split()[1] for line in connected.text.splitlines() if line.startswith("session "))
    made = Training(notebook, tmp_path, machine.runtime / "pathways" / f"{session}.json")
    yield made
    made.stop.touch()
    if made.path.exists():
        # While there is a connection: without one its end would take longer than the notebook's may.
        assert notebook.run("%pathways disconnect", timeout=DEADLINE).status == "ok"


def states(notebook) -> list[str]:
    """The states that the session has had since it was connected."""
    reported = notebook.run(
        "import pathways_jupyter\n"
        "events = pathways_jupyter.current_session().events()\n"
        "print(','.join(event.data['state'] for event in events if 'state' in event.data))"
    )
    every = reported.text.strip().split(",")
    return every[every.index("connected") :]


def lead(kubeconfig: Path, before: int, after: int) -> None:
    """Change the port in a kubeconfig, as a whole: the session may be reading it."""
    fresh = kubeconfig.with_suffix(".new")
    fresh.write_text(kubeconfig.read_text().replace(f":{before}", f":{after}"))
    fresh.replace(kubeconfig)


def restart_api(machine, *options: str) -> None:
    """Restart the API server of the embedded cluster."""
    restarted = machine.cli("local", "restart-api", *options)
    assert restarted.returncode == 0, restarted.stdout + restarted.stderr


@pytest.mark.thorough
def test_a_training_loop_goes_on_where_the_network_left_it(training, notebook, machine, link, kubeconfig, token):
    # Connections reset, as by a load balancer.
    link.reset()
    training.advances()

    # An API server that is restarted.
    restart_api(machine)
    training.advances()
    training.enters("connected")

    # An API server that is away for a while.
    link.cut()
    training.enters("interrupted")
    assert "Arrays are kept" in notebook.wait_for("Arrays are kept", timeout=DEADLINE)
    link.open()
    training.advances()
    training.enters("connected")

    # Credentials that are refused, until there are new ones.
    token.revoke()
    link.reset()
    training.enters("interrupted")
    assert "Log in again" in notebook.wait_for("Still no connection.", timeout=DEADLINE)
    token.renew()
    training.advances()
    training.enters("connected")

    # A server at another address.
    before = link.port
    link.move()
    training.enters("interrupted")
    lead(kubeconfig, before, link.port)
    training.advances()
    training.enters("connected")

    # A supervisor that stands still while its connections break.
    supervisor = psutil.Process(training.record["pid"])
    supervisor.suspend()
    link.reset()
    supervisor.resume()
    training.advances()
    training.enters("connected")

    training.finish()
    assert set(states(notebook)) == {"connected", "interrupted"}
    events = notebook.run("%pathways events").text
    assert events.count("Lost the connection to the cluster") == events.count("Connected again after") >= 3
    assert notebook.run("%pathways disconnect").status == "ok"
    assert not training.path.exists()


def test_a_cell_that_waits_for_the_network_can_be_interrupted(training, notebook, link):
    link.cut()
    training.enters("interrupted")
    notebook.manager.interrupt_kernel()
    cell = notebook.finish(training.request, timeout=DEADLINE)
    assert cell.error == "KeyboardInterrupt"
    link.open()
    training.enters("connected")
    again = notebook.run("print(int(value) in {steps, steps + 1})")
    assert "True" in again.text, again.shown
    assert notebook.run("%pathways disconnect").status == "ok"


@pytest.mark.soak
def test_what_is_uploaded_in_an_interruption_arrives_after_it(notebook, link, kubeconfig):
    """For the first upload JAX opens a connection, and gRPC waits for its other end for twenty seconds only."""
    connect = f"%load_ext pathways_jupyter\n%pathways connect --tpu tpuv6e:2x2=1 --wait 60 --kubeconfig {kubeconfig}"
    assert notebook.run(connect).status == "ok"
    notebook.run("import jax, numpy as np, jax.numpy as jnp\nkept = jnp.arange(8.0)")
    link.cut()
    began, request = time.monotonic(), notebook.begin("sent = jax.device_put(np.ones(1000))\nprint(sent.sum())")
    wait_until(lambda: time.monotonic() > began + 30)
    link.open()
    cell = notebook.finish(request, timeout=DEADLINE)
    assert "1000.0" in cell.text, cell.shown
    assert "28.0" in notebook.run("print(kept.sum())").text
    assert notebook.run("%pathways disconnect").status == "ok"


@pytest.mark.soak
def test_a_training_loop_goes_on_after_an_api_server_that_was_away_for_seconds(training, notebook, machine):
    for _ in range(3):
        restart_api(machine, "--away", "5")
        training.advances()
        training.enters("connected")
    training.finish()
    assert set(states(notebook)) == {"connected", "interrupted"}


@pytest.mark.soak
def test_a_way_on_which_nothing_comes_back_is_noticed(training, notebook, link):
    link.freeze()
    training.enters("interrupted")
    link.reset()
    link.thaw()
    training.advances()
    training.finish()


@pytest.mark.soak
def test_a_session_whose_devices_are_not_used_for_a_while_keeps_its_proxy(notebook, cluster):
    connected = notebook.run(
        "%load_ext pathways_jupyter\n"
        f"%pathways connect --tpu tpuv6e:2x2=1 --wait 60 --relay --keep 10 --kubeconfig {cluster}\n"
        "import jax, jax.extend, time\nprint(int(jax.numpy.ones(8).sum()))"
    )
    assert connected.status == "ok", connected.shown
    # Without a client there is no stream either; the proxy's liveness probe would end it after 25 s.
    idle = notebook.run("jax.extend.backend.clear_backends()\ntime.sleep(40)\nprint(int(jax.numpy.ones(8).sum()))")
    assert idle.text.strip() == "8", idle.shown
    assert notebook.run("%pathways disconnect").status == "ok"


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_training_loop_survives_a_hundred_interruptions(training, notebook, link, token, kubeconfig):
    supervisor, chance, taken = psutil.Process(training.record["pid"]), random.Random(1), []

    def away() -> None:
        link.cut()
        time.sleep(chance.uniform(0, 2))
        link.open()

    def refused() -> None:
        token.revoke()
        link.reset()
        time.sleep(chance.uniform(0, 2))
        token.renew()

    def moved() -> None:
        before = link.port
        link.move()
        lead(kubeconfig, before, link.port)

    def stopped() -> None:
        supervisor.suspend()
        time.sleep(30 if number == 50 else chance.uniform(0, 2))
        supervisor.resume()

    for number in range(100):
        time.sleep(chance.uniform(0, 0.3))
        chance.choice([away, refused, stopped, link.reset, link.reset] + [moved] * (number % 10 == 0))()
        since = time.monotonic()
        training.advances(1)
        taken.append(time.monotonic() - since)
    training.finish()
    assert set(states(notebook)) <= {"connected", "interrupted"}
    median = sorted(taken)[len(taken) // 2]
    print(f"the next step came after {median:.2f} s (median), {max(taken):.2f} s at most")


HELD = """
import jax, numpy as np
from pathways_jupyter.session.kernel import device_puts

# A call that overtakes the question for a layout.
device_puts._ask = lambda *_: None
held = jax.device_put(np.arange(12345.0)).block_until_ready()
f = jax.jit(lambda x: x + 1)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("ends", ["disconnect", "reconnect"])
def test_a_call_that_stops_the_whole_kernel_in_a_silence_is_ended_by_the_terminal(
    ends, notebook, machine, kubeconfig, link
):
    """Jaxlib asks for a layout, and holds the interpreter's lock: no Interrupt acts, and no button of the kernel."""
    connected = notebook.run(
        f"%load_ext pathways_jupyter\n%pathways connect --tpu tpuv6e:2x2=1 --kubeconfig {kubeconfig}"
    )
    assert connected.status == "ok", connected.shown
    assert notebook.run(HELD).status == "ok"
    (record,) = json.loads(machine.cli("sessions", "--json").stdout)
    link.freeze()
    request = notebook.begin("f(held)")
    wait_until(lambda: json.loads(machine.cli("sessions", "--json").stdout)[0]["state"] == "interrupted")
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(client.request, SessionRecord.from_json(record), Method(ends))
        if jax.__version_info__ < (0, 12):
            # Its jaxlib aborts when the connection ends meanwhile: nothing of the session outlives the kernel.
            wait_until(lambda: not notebook.manager.is_alive())
            link.thaw()
            wait_until(lambda: json.loads(machine.cli("sessions", "--json").stdout) == [])
            return
        assert notebook.finish(request).status == "error"
        link.thaw()
        answer = asked.result()
    if ends == "disconnect":
        assert answer == {"left": ""}
    else:
        assert answer["state"] == "connected"
        assert notebook.run("%pathways disconnect", timeout=DEADLINE).status == "ok"
    assert json.loads(machine.cli("sessions", "--json").stdout) == []
