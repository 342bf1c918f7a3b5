"""Round trips that JAX and the product wait for when the cluster is far away."""

from __future__ import annotations

import contextlib
import json
import math
import re
import time
from pathlib import Path

import holders
import pathways_jobs
import pytest
from asks import ask
from waits import wait_until

from benchmarks.link import Link, Traffic
from pathways_jupyter.base import runtime_files
from pathways_jupyter.kube import auth, objects
from pathways_jupyter.render import sessions
from pathways_jupyter.service.clusterwatch import ClusterWatch
from pathways_jupyter.session.clusters import Storage
from pathways_jupyter.session.protocol import Method
from pathways_jupyter.session.registry import SessionRecord

DELAY_SECONDS = 0.25
"""Far more than this machine needs between two requests."""


@pytest.fixture
def link(request, cluster):
    with Link(cluster, up=getattr(request, "param", None)) as made:
        yield made


@pytest.fixture(params=["--relay"])
def connected(request, notebook, link, tmp_path):
    kubeconfig = link.write(tmp_path / "kubeconfig")
    notebook.connect(f"--tpu tpuv6e:2x2=1 --wait 60 {request.param} --kubeconfig {kubeconfig}")
    put = "import jax, numpy as np, pathways_jupyter\njax.device_put(np.zeros(5)).block_until_ready()"
    assert notebook.run(put).status == "ok"
    yield notebook
    assert notebook.run("%pathways disconnect").status == "ok"


@pytest.mark.thorough
def test_putting_data_of_a_new_shape_waits_for_one_round_trip(connected, link):
    link.shape(delay=DELAY_SECONDS)

    def stages(columns: int) -> int:
        # The layout of the last shape is still being asked for.
        connected.run("")
        traffic = link.count()
        ended = connected.run(
            f"made = jax.device_put(np.ones((40, {columns}))).block_until_ready()\nimport time; print(time.monotonic())"
        )
        assert ended.status == "ok", ended.shown
        # What the cell did not wait for may have been answered before its end was known here.
        waited = [each for each in traffic.exchanges if each.ended <= float(ended.text)]
        return Traffic(exchanges=waited).stages

    # A renewal of the Lease or a ping may come right behind one of them. And in one of three, jaxlib asks for the
    # layout, and so stops the kernel, before the cell has ended.
    waited_for_one = any(stages(columns) == 1 for columns in range(1, 13))
    link.shape()
    assert waited_for_one


def takes_at_most(notebook, link, most):
    """Run commands in turn, until the best run of each took no more (stages, connections) than `most` has for it."""
    fewest = dict.fromkeys(most, (99, 99))
    # A pod that starts slowly leaves time for a round trip that nothing waits for.
    for _ in range(3):
        for command in most:
            link.shape(delay=DELAY_SECONDS)
            traffic = link.count()
            cell = notebook.run(f"%pathways {command}")
            fewest[command] = min(fewest[command], (traffic.stages, traffic.connections))
            link.shape()
            assert cell.status == "ok", cell.shown
        if all(fewest[each] <= most[each] for each in most):
            return
    raise AssertionError(fewest)


# Handshakes of TCP and TLS; what there is (service, slices, pods); the Job; the tunnel; a relay's hello; JAX's own. A
# reconnect removes the old proxy first; then it looks through the process for what is on its devices, half a second and
# more on a busy one, while keepalives pass that nothing waits for: without it, ten were measured. A disconnect ends
# when the Job's deletion is accepted: it owns all else.
@pytest.mark.thorough
@pytest.mark.parametrize("options", ["--relay", "--no-relay", "--relay --wait 60"])
def test_connect_and_disconnect_wait_for_few_round_trips(options, notebook, link, tmp_path):
    connect = f"connect --tpu tpuv6e:2x2=1 {options} --kubeconfig {link.write(tmp_path / 'kubeconfig')}"
    most = {connect: (9, 5), "reconnect --yes": (10, 5), "disconnect": (1, 0)}
    notebook.run("%load_ext pathways_jupyter\nimport jax")
    takes_at_most(notebook, link, most)


@pytest.mark.thorough
def test_a_suspend_and_a_resume_wait_for_few_round_trips_however_many_arrays(notebook, link, cluster, tmp_path):
    storage = Storage.read(Path(cluster).with_name(runtime_files.STORAGE))
    variables = "".join(f"%env {name}={value}\n" for name, value in storage.variables.items())
    options = f"--kubeconfig {link.write(tmp_path / 'kubeconfig')} --gcs-bucket {storage.bucket}"
    cell = notebook.run(
        f"{variables}%load_ext pathways_jupyter\n%pathways connect --tpu tpuv6e:2x2=1 --no-relay {options}\n"
        "import jax, numpy as np\nfrom pathways_jupyter.saved import arrays\narrays._LEAST_PIECE_BYTES = 1\n"
        "kept = [jax.device_put(np.ones(8), each) for each in jax.devices() for _ in range(4)]\n"
        "jax.block_until_ready(kept)"
    )
    assert cell.status == "ok", cell.shown
    # Eight pieces, each of three: what is written is compiled first, then begun, and its end is waited for. Keepalives
    # pass while the process is searched: two of a suspend, two of a resume.
    takes_at_most(notebook, link, {"suspend --yes": (8, 99), "resume": (15, 99)})
    assert notebook.run("%pathways disconnect").status == "ok"


@pytest.fixture
def open_prepared(open_notebook, link, tmp_path):
    """Open notebooks whose supervisor has opened connections over the link, because the extension was loaded."""
    kubeconfig = link.write(tmp_path / "kubeconfig")

    def prepared():
        notebook = open_notebook()
        link.shape(delay=DELAY_SECONDS)
        opened = link.count()
        notebook.run(f"%env KUBECONFIG={kubeconfig}\n%load_ext pathways_jupyter\nimport jax")
        wait_until(lambda: opened.connections and opened.requests == opened.connections)
        return notebook

    return prepared


# As above without the handshakes.
@pytest.mark.thorough
@pytest.mark.parametrize("options", ["--relay", "--no-relay", "--relay --wait 60"])
def test_a_prepared_connect_uses_the_connections_that_are_open(options, open_prepared, link):
    stages, connections = [], []
    for _ in range(3):
        notebook = open_prepared()
        traffic = link.count()
        cell = notebook.run(f"%pathways connect --tpu tpuv6e:2x2=1 {options}")
        stages.append(traffic.stages)
        connections.append(traffic.connections)
        link.shape()
        assert cell.status == "ok", cell.shown
        assert notebook.run("%pathways disconnect").status == "ok"
        if min(stages) <= 6 and min(connections) <= 2:
            break
    assert min(stages) <= 6, stages
    assert min(connections) <= 2, connections


@pytest.mark.thorough
def test_a_prepared_connect_outlives_the_end_of_the_connections_that_were_open(open_prepared, link):
    notebook = open_prepared()
    link.reset()
    notebook.connect("--tpu tpuv6e:2x2=1 --relay")
    assert notebook.run("%pathways disconnect").status == "ok"


_FAR = ("far-1", "far-2", "far-3")
_HANDSHAKES = 2
"""Stages before the first request of a command: TCP's handshake and TLS's."""


@pytest.fixture(scope="module")
def holder(cluster):
    with contextlib.closing(holders.hold(cluster)):
        yield


@pytest.fixture(scope="module")
def shown_job(cluster, machine, tmp_path_factory):
    manifest = tmp_path_factory.mktemp("job") / "job.yaml"
    # One that does not end: of one that has failed, the log is read too.
    manifest.write_text(json.dumps(pathways_jobs.training("shown", "sleep", "1000")))
    assert machine.cli("job", "apply", str(manifest), KUBECONFIG=str(cluster)).returncode == 0
    yield
    for name in ("shown", *_FAR):
        machine.cli("job", "delete", name, "--yes", KUBECONFIG=str(cluster))


# What a command waits for, one after the other: an answer, or all answers of requests that were sent at once. Which
# proxy has which slices only its log says, and which logs there are to read the pods say: two stages.
@pytest.mark.parametrize(
    ("command", "stages", "requests"),
    [
        ("slices", 2, 5),
        ("services", 2, 5),
        ("doctor", 2, 40),
        ("sessions", 0, 0),
        ("job apply --dry-run JOB", 1, 2),
        ("job apply JOB", 2, 3),
        # The job and then its parts, beside events.
        ("job show shown", 2, 5),
        ("job list", 1, 2),
    ],
)
def test_a_command_waits_for_few_round_trips(
    command, stages, requests, machine, cluster, holder, shown_job, link, tmp_path
):
    kubeconfig, job = link.write(tmp_path / "kubeconfig"), tmp_path / "job.yaml"
    if command.startswith("job show"):
        # Pages of events are read one after the other; the tests before have left as many as they have.
        pages = pages_of_events(cluster)
        stages, requests = max(stages, pages), requests + pages - 1
    most, seen = (_HANDSHAKES + stages if stages else 0, requests), []
    # On a busy machine requests that do not wait for each other may be sent one after the other, and the proxy of
    # another test may still be ending.
    for name in _FAR:
        job.write_text(json.dumps(pathways_jobs.training(name)))
        link.shape(delay=DELAY_SECONDS)
        traffic = link.count()
        done = machine.cli(*command.replace("JOB", str(job)).split(), "--json", KUBECONFIG=str(kubeconfig))
        link.shape()
        assert done.returncode == 0, done.stdout + done.stderr
        seen.append((traffic.stages, traffic.requests))
        if _within(seen[-1], most):
            break
    assert any(_within(each, most) for each in seen), seen


def _within(counted, most):
    return all(each <= limit for each, limit in zip(counted, most, strict=True))


def pages_of_events(kubeconfig):
    events = ask(kubeconfig, objects.list_, objects.EVENTS, namespace="default").items
    return max(1, math.ceil(len(events) / objects.PAGE))


async def test_the_first_look_of_a_page_waits_for_few_round_trips(holder, link, tmp_path):
    stages = []
    for _ in range(3):
        link.shape(delay=DELAY_SECONDS)
        traffic = link.count()
        watch = ClusterWatch(auth.load(str(link.write(tmp_path / "kubeconfig"))))
        watch.add(lambda _message: None)
        try:
            await watch.until_drawn()
            stages.append(traffic.stages)
            assert watch.is_live
        finally:
            link.shape()
            await watch.close()
        # All lists at once; then all watches, and the logs of the proxies.
        if stages[-1] <= _HANDSHAKES + 2:
            break
    assert min(stages) <= _HANDSHAKES + 2, stages


def test_a_session_and_the_doctor_show_the_round_trip(cluster, machine, tmp_path):
    with Link(cluster, delay=0.05) as link:
        kubeconfig = link.write(tmp_path / "kubeconfig")
        with contextlib.closing(holders.hold(kubeconfig)) as held:
            record = SessionRecord.from_json(held.answer(held.ask(Method.STATUS), patience=holders.DEADLINE))
        assert link.round_trip <= record.round_trip
        assert f"{record.round_trip * 1000:.0f} ms to the cluster" in sessions.card(record, {}).text
        done = machine.cli("doctor", "--json", KUBECONFIG=str(kubeconfig))
        (reached,) = [each["message"] for each in json.loads(done.stdout) if each["name"] == "reachable"]
        found = re.search(
            r"(\d+) ms to the cluster: a new operation takes about .* s, later ones none; .*lab up", reached
        )
        assert found is not None, reached
        assert int(found[1]) >= 1000 * link.round_trip


_UPLOAD = r"last upload (\d+(?:\.\d+)?) Mbit/s at \d\d:\d\d:\d\d"


@pytest.mark.thorough
@pytest.mark.parametrize("link", [20 * 125_000], indirect=True, ids=["20 Mbit/s"])
@pytest.mark.parametrize("connected", ["--relay", "--no-relay"], indirect=True)
def test_status_and_the_doctor_show_the_rate_of_the_last_upload(connected, link, machine, tmp_path):
    kubeconfig = link.write(tmp_path / "kubeconfig")
    before = connected.run("%pathways status").text + machine.cli("doctor", KUBECONFIG=str(kubeconfig)).stdout
    assert "last upload" not in before, "nothing was sent yet"
    # Short messages while nothing else is sent do not belong to a transfer.
    small = "for number in range(20): float(jax.device_put(np.float32(number)))"
    rates = []
    # The link stands still while a busy machine runs other processes.
    for _ in range(3):
        cell = connected.run(f"{small}\njax.device_put(np.ones(3 << 20, np.float32)).block_until_ready()")
        assert cell.status == "ok", cell.shown
        shown = connected.run("%pathways status").text
        doctor = machine.cli("doctor", KUBECONFIG=str(kubeconfig)).stdout
        found = [re.search(_UPLOAD, text) for text in (shown, doctor)]
        assert all(found), (shown, doctor)
        rates.append([float(each[1]) for each in found])
        if rates[-1] == pytest.approx([20, 20], rel=0.15):
            break
    assert rates[-1] == pytest.approx([20, 20], rel=0.15), rates


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("stall_seconds", [0, 1, 3, 6])
@pytest.mark.parametrize(
    ("megabits", "delay_seconds", "megabytes"), [(1, 0.2, 3), (2, 0.025, 8), (10, 0.1, 32)], ids=str
)
@pytest.mark.parametrize("connected", ["--relay", "--no-relay"], indirect=True)
def test_a_slow_link_is_not_taken_for_a_dead_one(connected, link, megabits, delay_seconds, megabytes, stall_seconds):
    link.shape(delay=delay_seconds, up=megabits * 125_000, down=megabits * 125_000)
    moving = connected.begin(
        f"there = np.arange({megabytes} << 18, dtype=np.int32)\n"
        "back = np.asarray(jax.device_put(there).block_until_ready() + 1)\n"
        "print((back == there + 1).all())"
    )
    if stall_seconds:
        # In the middle of the way up.
        time.sleep(megabytes * 4 / megabits)
        link.freeze()
        time.sleep(stall_seconds)
        link.thaw()
    cell = connected.finish(moving, timeout=500)
    link.shape()
    log = connected.run("print(open(pathways_jupyter.current_session().record.log).read())").text
    assert cell.text.strip() == "True", f"{cell.shown}\n{log}"
    states = connected.run(
        "print([event.data['state'] for event in pathways_jupyter.current_session().events() if 'state' in event.data])"
    )
    assert "interrupted" not in states.text, log
