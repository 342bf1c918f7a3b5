from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from pathlib import Path

import psutil
import pytest
from waits import have_ended, wait_until

from pathways_jupyter.base import tasks
from pathways_jupyter.base.errors import ConfigError, LocalClusterError
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.auth import load
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBS
from pathways_jupyter.kube.watch import watch
from pathways_jupyter.local import cluster, control, daemon
from pathways_jupyter.local.bucket import NAME
from pathways_jupyter.local.control import DaemonRequest
from pathways_jupyter.local.directory import BUCKET, ClusterDirectory, DaemonRecord
from pathways_jupyter.local.node.spawner import Spawner
from pathways_jupyter.local.running import RunningCluster
from pathways_jupyter.local.settings import ClusterSettings

DEADLINE = 90.0
WAITED = "exec sleep 600"
SERVICE = "jobset.sigs.k8s.io/jobset-name=pathways-cluster"
HEAD = "batch.kubernetes.io/job-name=pathways-cluster-pathways-head-0"

kubectl_needed = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


@pytest.fixture(scope="module")
def runtime(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        path = tmp_path_factory.mktemp("runtime")
        patch.setenv("JUPYTER_RUNTIME_DIR", str(path))
        yield path
    assert list((path / "pathways" / "local").glob("*")) == []


@pytest.fixture(scope="module")
def shared(runtime):
    """One cluster for the tests that do not change it for good."""
    running = cluster.up({"tpuv6e:2x2": 2}, name="shared", idle_seconds=600, fast_heal=True)
    yield running
    cluster.down("shared")


@pytest.fixture
def name(runtime):
    """The name of a cluster of this test's own."""
    unique = f"t{uuid.uuid4().hex[:8]}"
    yield unique
    cluster.down(unique)


def kubectl(running: cluster.LocalCluster, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    line = ["kubectl", "--kubeconfig", str(running.kubeconfig), *command]
    return subprocess.run(line, check=check, capture_output=True, text=True, timeout=DEADLINE)


def items(running: cluster.LocalCluster, *what: str) -> list[dict]:
    return json.loads(kubectl(running, "get", *what, "-o", "json").stdout)["items"]


def settled(running: cluster.LocalCluster) -> bool:
    """Return whether the three pods of the service are there, and all of them are ready."""
    pods = items(running, "pods", "-l", SERVICE)
    conditions = [(each["type"], each["status"]) for pod in pods for each in pod["status"].get("conditions", ())]
    return len(pods) == conditions.count(("Ready", "True")) == 3 and running.status()["ready"]


def starts(running: cluster.LocalCluster) -> set[tuple[str, str, int]]:
    """Each start of a container of the service: its pod's uid, its name, and how often it was started before."""
    return {
        (pod["metadata"]["uid"], each["name"], each["restartCount"])
        for pod in items(running, "pods", "-l", SERVICE)
        for each in pod["status"].get("containerStatuses", ())
    }


def family(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def gone(processes: list[psutil.Process]) -> bool:
    wait_until(lambda: have_ended(processes), DEADLINE)
    return True


def test_up_gives_a_cluster_whose_service_is_ready(shared):
    status = shared.status()
    assert status["ready"]
    assert status["services"] == ["pathways-cluster"]
    assert cluster.find("shared") == shared
    assert shared.directory.stat().st_mode & 0o777 == 0o700
    assert shared.kubeconfig.stat().st_mode & 0o777 == 0o600


def test_the_cluster_is_not_a_child_of_this_process(shared):
    assert psutil.Process(shared.pid).ppid() != os.getpid()


def test_up_again_gives_the_same_cluster(shared):
    assert cluster.up({"tpuv6e:2x2": 1}, name="shared").pid == shared.pid


@kubectl_needed
def test_up_with_more_than_there_is_adds_it_to_what_runs(name):
    small = cluster.up({"tpuv6e:2x2": 1}, name=name, idle_seconds=600, fast_heal=True)
    before = {pod["metadata"]["uid"] for pod in items(small, "pods")}
    grown = cluster.up({"tpuv6e:2x2": 3, "tpuv5e:2x4": 1}, name=name, spare={"tpuv5e:2x2": 1})
    assert grown == cluster.find(name)
    assert (grown.pid, grown.settings.instances, grown.settings.spare) == (
        small.pid,
        {"tpuv6e:2x2": 3, "tpuv5e:2x4": 1},
        {"tpuv5e:2x2": 1},
    )
    assert before < {pod["metadata"]["uid"] for pod in items(grown, "pods")}
    assert grown.status()["services"] == ["pathways-cluster", "tpuv5e-2x4"]
    assert "*** 3/3 Pathways Slices Now Ready" in kubectl(grown, "logs", "--tail=-1", "-l", HEAD).stdout
    pools = {node["metadata"]["labels"]["cloud.google.com/gke-nodepool"] for node in items(grown, "nodes")}
    assert pools == {
        "cpu-np",
        *(f"tpu{pool}" for pool in ("v6e-2x2-0", "v6e-2x2-1", "v6e-2x2-2", "v5e-2x4-0", "v5e-2x2-0")),
    }
    # A resource manager that replaces the one that has grown, and an API that was restarted, know of all three.
    kubectl(grown, "delete", "pod", "-l", HEAD)
    # Its Job may be made anew as well, so that the first pod that replaces it is not the last.
    log = ("logs", "--tail=-1", "-l", HEAD)
    wait_until(lambda: "*** 3/3 Pathways Slices Now Ready" in kubectl(grown, *log, check=False).stdout, DEADLINE)
    grown.restart_api()
    assert cluster.up({"tpuv6e:2x2": 3}, name=name) == grown
    assert cluster.up({"tpuv6e:2x2": 4}, name=name).settings.instances == {"tpuv6e:2x2": 4, "tpuv5e:2x4": 1}


@kubectl_needed
def test_the_operator_comes_back_when_its_pod_or_its_node_is_deleted(shared):
    system = ("-n", "pathways-system")

    def operator() -> dict:
        return next(iter(items(shared, "pods", *system, "--field-selector=status.phase=Running")), {})

    def renewed() -> str:
        return max((each["spec"].get("renewTime") or "" for each in items(shared, "leases", *system)), default="")

    def leads(before: str = "", uid: str = "") -> bool:
        return bool(operator()) and operator()["metadata"]["uid"] != uid and renewed() > before

    wait_until(leads, DEADLINE)
    for kind in ("pod", "node"):
        pod, before = operator(), renewed()
        name = pod["spec"]["nodeName"] if kind == "node" else pod["metadata"]["name"]
        kubectl(shared, "delete", kind, name, *system)
        wait_until(functools.partial(leads, before, pod["metadata"]["uid"]), DEADLINE)
    # Its node is that of the service's head, too, without which all of the service starts again.
    wait_until(lambda: settled(shared), DEADLINE)


@kubectl_needed
def test_the_service_looks_as_its_documentation_shows_it(shared):
    pods = sorted(pod["metadata"]["name"][:-6] for pod in items(shared, "pods"))
    assert pods == ["pathways-cluster-pathways-head-0-0", "pathways-cluster-worker-0-0", "pathways-cluster-worker-1-0"]
    head = next(pod["metadata"]["name"] for pod in items(shared, "pods") if "head" in pod["metadata"]["name"])
    assert "*** 2/2 Pathways Slices Now Ready" in kubectl(shared, "logs", head, "-c", "pathways-rm").stdout
    worker = next(pod["metadata"]["name"] for pod in items(shared, "pods") if "worker-0" in pod["metadata"]["name"])
    logs = kubectl(shared, "logs", worker).stdout
    assert "MegaScale transport init succeeded." in logs
    address = "--resource_manager_address=pathways-cluster-pathways-head-0-0.pathways-cluster:29001"
    assert f"argv[2]: '{address}'" in logs
    inside = kubectl(shared, "exec", "-c", "pathways-worker", worker, "--", "/bin/sh", "-c", "echo hi > f; cat f; pwd")
    greeting, directory = inside.stdout.splitlines()
    assert greeting == "hi"
    assert directory.endswith("/root")


@kubectl_needed
def test_a_worker_that_is_killed_comes_back_and_its_slice_heals(shared):
    worker = next(pod for pod in items(shared, "pods") if "worker-1" in pod["metadata"]["name"])["metadata"]["name"]
    with subprocess.Popen(
        ["kubectl", "--kubeconfig", shared.kubeconfig, "logs", "-f", "--tail=-1", "-l", HEAD],
        stdout=subprocess.PIPE,
        text=True,
    ) as following:
        try:
            assert following.stdout is not None
            lines = iter(following.stdout.readline, "")
            # What it wrote before: now the log is followed, and no line of what comes can be missed.
            assert any("2/2 Pathways Slices Now Ready" in line for line in lines)
            end = ["/bin/sh", "-c", "kill -s SIGILL 1"]
            kubectl(shared, "exec", worker, "-c", "pathways-worker", "--", *end, check=False)
            assert any("is down" in line for line in lines)
            assert any("2/2 Pathways Slices Now Ready" in line for line in lines)
        finally:
            # Whatever happened: leaving the block waits for its end.
            following.terminate()
    [pod] = [each for each in items(shared, "pods") if each["metadata"]["name"] == worker]
    [status] = pod["status"]["containerStatuses"]
    assert status["restartCount"] == 1
    assert status["lastState"]["terminated"]["exitCode"] == 128 + signal.SIGILL
    for previous in ("true", "false"):
        said = kubectl(shared, "logs", worker, "-c", "pathways-worker", f"--previous={previous}").stdout
        assert "Pathways Server serving" in said


@kubectl_needed
def test_a_container_that_ran_once_has_no_previous_log(shared):
    head = next(pod["metadata"]["name"] for pod in items(shared, "pods") if "head" in pod["metadata"]["name"])
    refused = kubectl(shared, "logs", head, "-c", "pathways-rm", "--previous", check=False)
    assert refused.returncode == 1
    assert refused.stderr == (
        f'Error from server (BadRequest): previous terminated container "pathways-rm" in pod "{head}" not found\n'
    )


async def lose_worker(running: cluster.LocalCluster) -> dict:
    """Delete the only worker of a service once it is ready; return its Job's status when that has counted the loss."""
    job = "pathways-cluster-worker-0"
    async with (
        asyncio.timeout(DEADLINE),
        Client(load(str(running.kubeconfig))) as client,
        contextlib.aclosing(watch(client, JOBS, namespace="default", name=job)) as changes,
    ):

        async def status_with(field: str) -> dict:
            return await anext(
                found async for change in changes if (found := change.object.get("status") or {}).get(field) == 1
            )

        await status_with("ready")
        labels = f"batch.kubernetes.io/job-name={job}"
        (pod,) = (await objects.list_(client, objects.PODS, namespace="default", labels=labels)).items
        await objects.delete(client, objects.PODS, pod["metadata"]["name"], namespace="default", grace_seconds=1)
        return await status_with("failed")


def test_unless_asked_otherwise_a_worker_is_replaced_no_sooner_than_by_kubernetes(name):
    running = cluster.up({"tpuv6e:2x2": 1}, name=name, idle_seconds=600, hollow=True, wait=False)
    # The loss is counted, and no other pod is there at that moment: the wait has begun.
    assert asyncio.run(lose_worker(running))["active"] == 0
    for other, why in (
        ({"fast_heal": True}, " and does not heal fast"),
        ({"bucket": "/elsewhere"}, ", with its bucket in its own directory"),
        ({"port": 1}, f", on port {running.url.rpartition(':')[2]}"),
        ({"idle_seconds": 3600}, ", and ends after 600 s without use"),
    ):
        with pytest.raises(LocalClusterError, match=f"already running{why}"):
            cluster.up({"tpuv6e:2x2": 1}, name=name, **other)


@kubectl_needed
def test_the_api_server_restarts_in_place_and_pods_go_on(shared):
    # Else their status may change meanwhile.
    wait_until(lambda: settled(shared), DEADLINE)
    kubectl(shared, "create", "configmap", "kept", "--from-literal=a=b")
    before = [(pod["metadata"]["uid"], pod["status"]) for pod in items(shared, "pods")]
    shared.restart_api()
    assert [(pod["metadata"]["uid"], pod["status"]) for pod in items(shared, "pods")] == before
    assert kubectl(shared, "get", "configmap", "kept", "-o", "jsonpath={.data.a}").stdout == "b"
    kubectl(shared, "run", "after", "--image=x", "--restart=Never", "--command", "--", "sleep", "600")
    kubectl(shared, "wait", "--for=condition=Ready", "pod/after")
    kubectl(shared, "delete", "pod", "after", "--grace-period=0", "--force")
    kubectl(shared, "delete", "configmap", "kept")


@kubectl_needed
def test_a_node_can_be_drained_and_put_back(shared):
    worker = next(pod for pod in items(shared, "pods") if "worker-0" in pod["metadata"]["name"])
    node = worker["spec"]["nodeName"]
    kubectl(shared, "drain", node, "--ignore-daemonsets", "--force", "--timeout=60s", "--grace-period=1")
    kubectl(shared, "wait", "--for=jsonpath={.status.phase}=Pending", "pod", "-l",
            "batch.kubernetes.io/job-name=pathways-cluster-worker-0", "--timeout=60s")  # fmt: skip
    kubectl(shared, "uncordon", node)
    kubectl(shared, "wait", "--for=condition=Ready", "pod", "-l",
            "batch.kubernetes.io/job-name=pathways-cluster-worker-0", "--timeout=60s")  # fmt: skip


@kubectl_needed
def test_a_pod_reaches_the_api_as_its_service_account(shared):
    command = ["kubectl", "auth", "can-i", "list", "pods"]
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "asks"},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x", "command": command}]},
    }
    subprocess.run(
        ["kubectl", "--kubeconfig", shared.kubeconfig, "apply", "-f", "-"],
        input=json.dumps(manifest),
        text=True,
        check=True,
        timeout=DEADLINE,
    )
    kubectl(shared, "wait", "--for=jsonpath={.status.phase}=Failed", "pod/asks", "--timeout=60s")
    assert kubectl(shared, "logs", "asks").stdout.startswith("no")
    kubectl(shared, "delete", "pod", "asks")


@kubectl_needed
def test_a_fork_server_that_is_killed_is_replaced_and_the_service_comes_back(shared):
    [zygote] = [each for each in psutil.Process(shared.pid).children() if each.children()]
    before, started = zygote.children(), starts(shared)
    zygote.kill()
    assert gone(before)
    # Until its end is noticed, all of them look as before.
    wait_until(lambda: settled(shared) and not started & starts(shared), DEADLINE)


def test_two_at_once_get_one_cluster_and_down_leaves_nothing_of_it(name):
    script = (
        "import sys; from pathways_jupyter.local import cluster\n"
        "print(cluster.up({'tpuv6e:2x2': 1}, name=sys.argv[1], idle_seconds=600).pid)"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", script, name], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    [pid] = {each.communicate(timeout=DEADLINE)[0] for each in started}
    processes = family(int(pid))
    assert len(processes) >= 5
    assert cluster.down(name)
    assert gone(processes)
    assert not ClusterDirectory(name).path.exists()
    assert not cluster.down(name)
    assert cluster.find(name) is None


def test_nothing_survives_a_daemon_that_is_killed_and_up_starts_anew(name):
    running = cluster.up({"tpuv6e:2x2": 1}, name=name, idle_seconds=600)
    processes = family(running.pid)
    os.kill(running.pid, signal.SIGKILL)
    assert gone(processes)
    assert cluster.find(name) is None
    with pytest.raises(LocalClusterError, match="not running"):
        running.restart_api()
    again = cluster.up({"tpuv6e:2x2": 1}, name=name, idle_seconds=600, wait=False)
    assert again.pid != running.pid


def killed(running: cluster.LocalCluster) -> None:
    os.kill(running.pid, signal.SIGKILL)


def ended(running: cluster.LocalCluster) -> None:
    # As when nothing has used it for long.
    os.kill(running.pid, signal.SIGTERM)


@pytest.mark.parametrize("end", [killed, ended])
def test_the_bucket_outlives_its_cluster_until_down(name, end):
    hollow = {"name": name, "idle_seconds": 600, "hollow": True, "wait": False}
    running = cluster.up({"tpuv6e:2x2": 1}, **hollow)
    place = running.directory / BUCKET / NAME / "saved" / "weights"
    place.parent.mkdir(parents=True)
    place.write_bytes(b"1")
    processes = family(running.pid)
    end(running)
    assert gone(processes)
    again = cluster.up({"tpuv6e:2x2": 1}, **hollow)
    assert place.read_bytes() == b"1"
    end(again)
    cluster.down(name)
    assert not running.directory.exists()


def test_a_signal_ends_the_cluster(name):
    running = cluster.up({"tpuv6e:2x2": 1}, name=name, idle_seconds=600, wait=False)
    processes = family(running.pid)
    os.kill(running.pid, signal.SIGTERM)
    assert gone(processes)
    assert not running.directory.exists()


def test_it_can_be_ended_while_it_starts(name):
    with concurrent.futures.ThreadPoolExecutor() as pool:
        running = cluster.up({"tpuv6e:2x2": 2}, name=name, idle_seconds=600, wait=False)
        waiting = pool.submit(running.wait)
        assert cluster.down(name)
        error = waiting.exception(DEADLINE)
    assert error is None or isinstance(error, LocalClusterError)


def test_a_daemon_that_hangs_is_killed(name, monkeypatch):
    running = cluster.up({"tpuv6e:2x2": 1}, name=name, idle_seconds=600, wait=False)
    processes = family(running.pid)
    os.kill(running.pid, signal.SIGSTOP)
    monkeypatch.setattr(cluster, "_STOP_SECONDS", 0.1)
    assert cluster.down(name)
    assert gone(processes)


def test_a_cluster_that_is_not_used_ends(name):
    running = cluster.up({"tpuv6e:2x2": 1}, name=name, idle_seconds=0.2)
    # It may have ended by now.
    with contextlib.suppress(psutil.NoSuchProcess):
        assert gone(family(running.pid))
    ClusterDirectory(name).until_dead()
    assert cluster.find(name) is None


async def test_a_client_that_gives_up_waiting_keeps_no_cluster(name, monkeypatch):
    async def never(_: RunningCluster) -> None:
        await asyncio.Event().wait()

    place = ClusterDirectory(name)
    alive = place.make()
    monkeypatch.setattr(daemon, "_STARTING_SECONDS", 0.0)
    monkeypatch.setattr(RunningCluster, "until_ready", never)
    running = daemon.Daemon(place, ClusterSettings({"tpuv6e:2x2": 1}, idle_seconds=2.0))
    handlers = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    served: asyncio.Queue[DaemonRecord] = asyncio.Queue()
    serving = asyncio.create_task(running.run(served.put_nowait))
    try:
        async with asyncio.timeout(DEADLINE):
            record = await served.get()
            with pytest.raises(TimeoutError):
                await asyncio.to_thread(control.ask, record.control, DaemonRequest.WAIT, timeout=0.1)
            await serving
    finally:
        await tasks.stop(serving)
        os.close(alive)
        for number, handler in zip((signal.SIGTERM, signal.SIGINT), handlers, strict=True):
            signal.signal(number, handler)
    assert not place.path.exists()


def test_a_request_that_fails_is_not_called_unknown(shared):
    path = ClusterDirectory(shared.name).read().control
    with pytest.raises(LocalClusterError, match="restart-api of the embedded cluster failed: ValueError") as failed:
        control.ask(path, DaemonRequest.RESTART_API, timeout=DEADLINE, away="soon")
    assert f"{shared.directory}/daemon.log" in failed.value.hint
    with pytest.raises(LocalClusterError, match="Unknown request; the daemon serves status, wait"):
        control.ask(path, "dance", timeout=DEADLINE)


@kubectl_needed
def test_a_watch_and_a_job_keep_a_cluster(name):
    running = cluster.up({"tpuv6e:2x2": 1}, name=name, idle_seconds=3, wait=False)
    container = {"name": "keeps", "image": "x", "command": ["sleep", "5"]}
    pod = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "keeps"}, "spec": {"template": pod}}

    async def watch_and_create():
        async with (
            Client(load(str(running.kubeconfig))) as client,
            contextlib.aclosing(watch(client, JOBS, namespace="default")) as changes,
        ):
            await anext(changes)
            await objects.create(client, JOBS, job, namespace="default")

    asyncio.run(watch_and_create())
    assert running.status()["busy"]
    # It ends only after the Job has, which takes longer than the idle time.
    processes = family(running.pid)
    kubectl(running, "wait", "--for=condition=Complete", "job/keeps", "--timeout=60s")
    assert gone(processes)


def test_a_start_on_a_full_disk_says_so(tmp_path, monkeypatch):
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=0700", "tmpfs", str(place)]
    if os.geteuid() or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root can mount a small file system")
    try:
        monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(place))
        with contextlib.suppress(OSError), (place / "ballast").open("wb", buffering=0) as ballast:
            while ballast.write(bytes(4096)):
                pass
        with pytest.raises(LocalClusterError, match="No space left on device"):
            cluster.up({"tpuv6e:2x2": 1})
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True, capture_output=True)


def test_a_growth_that_cannot_be_recorded_changes_nothing_and_the_next_one_is_recorded(name):
    def known() -> tuple[dict, dict]:
        running = cluster.find(name)
        return running.settings.instances, running.status()["instances"]

    running = cluster.up({"tpuv6e:2x2": 1}, name=name, idle_seconds=600, hollow=True, wait=False)
    # Where a full disk is needed, root alone can have one: no file can be written over a directory either.
    obstacle = running.directory / f"cluster.{running.pid}.tmp"
    obstacle.mkdir()
    with pytest.raises(LocalClusterError, match="Is a directory"):
        cluster.up({"tpuv6e:2x2": 2}, name=name, wait=False)
    assert known() == ({"tpuv6e:2x2": 1},) * 2
    assert cluster.up({"tpuv6e:2x2": 1}, name=name, wait=False) == running
    obstacle.rmdir()
    cluster.up({"tpuv6e:2x2": 2}, name=name, wait=False)
    assert known() == ({"tpuv6e:2x2": 2},) * 2


def test_a_port_in_use_is_one_clear_error(name, runtime):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(LocalClusterError, match=f"cannot listen on 127.0.0.1:{port}"):
            cluster.up({"tpuv6e:2x2": 1}, name=name, port=port)
    assert not ClusterDirectory(name).path.exists()


def test_a_bucket_that_cannot_be_created_is_named_with_the_option(name, runtime):
    with pytest.raises(LocalClusterError, match=f"The bucket's directory /dev/null/{NAME} cannot be created") as failed:
        cluster.up({"tpuv6e:2x2": 1}, name=name, bucket="/dev/null")
    assert failed.value.hint == "Name another one with --bucket."
    assert not ClusterDirectory(name).path.exists()


async def test_a_start_that_fails_leaves_no_process(tmp_path):
    cold, warm = Spawner(log=tmp_path / "cold.log"), Spawner(log=tmp_path / "warm.log")
    earlier = family(os.getpid())
    cold.start()
    warm.start()
    servers = [each for each in family(os.getpid()) if each not in earlier]
    assert len(servers) == 2
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = ClusterSettings({"tpuv6e:2x2": 1}, port=taken.getsockname()[1])
        running = RunningCluster(tmp_path, settings, cold=cold, warm=warm)
        with pytest.raises(LocalClusterError, match="cannot listen"):
            await running.start()
    assert gone(servers)


def test_it_starts_for_a_process_with_very_many_files(name):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(2048, limits[0]), limits[1]))
    with contextlib.ExitStack() as files:
        files.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        while files.enter_context(open(os.devnull)).fileno() < 1024:
            pass
        assert cluster.up({"tpuv6e:2x2": 1}, name=name, idle_seconds=600, hollow=True, wait=False) == cluster.find(name)


def test_bad_input_starts_nothing(name):
    with pytest.raises(ConfigError):
        cluster.up({"tpuv6e:9x9": 1}, name=name)
    with pytest.raises(ConfigError):
        cluster.up({"tpuv6e:2x2": 0}, name=name)
    with pytest.raises(LocalClusterError, match="cannot be the name"):
        cluster.up(name="../x")
    assert cluster.find(name) is None


def test_a_long_runtime_directory_is_no_obstacle(name, monkeypatch, tmp_path):
    deep = tmp_path / ("d" * 120)
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(deep))
    running = cluster.up({"tpuv6e:2x2": 1}, name=name, idle_seconds=600, wait=False)
    elsewhere = [Path(each) for each in ClusterDirectory(name).read().elsewhere]
    assert elsewhere
    assert elsewhere[0].exists()
    assert cluster.down(name)
    assert not elsewhere[0].exists()
    assert not running.directory.exists()


def test_the_lock_is_one_for_all_who_wait_and_is_gone_after_the_last(name):
    place = ClusterDirectory(name)
    lock, inside, rounds = place.path.with_name(f"{name}.lock"), [], []

    def take() -> None:
        for _ in range(200):
            with place.exclusively():
                inside.append(1)
                rounds.append((len(inside), lock.exists()))
                inside.pop()

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for each in [pool.submit(take) for _ in range(8)]:
            each.result(DEADLINE)
    assert (set(rounds), len(rounds)) == ({(1, True)}, 1600)
    assert not lock.exists()


def test_a_record_that_cannot_be_read_is_reported_and_down_still_ends_its_cluster(name):
    running = cluster.up({"tpuv6e:2x2": 1}, name=name, idle_seconds=600, wait=False)
    processes = family(running.pid)
    for text in (
        "{}",
        "[1]",
        '{"pid": 1, "settings": {"invented_later": 1}}',
        '{"pid": 1, "port": null, "control": "x"}',
        "not JSON",
    ):
        (running.directory / "cluster.json").write_text(text)
        assert cluster.find(name) is None
        for use in (running.status, lambda: cluster.up({"tpuv6e:2x2": 1}, name=name)):
            with pytest.raises(LocalClusterError, match="incompatible version of pathways_jupyter") as caught:
                use()
            assert f"local down --name {name}" in caught.value.hint
    assert cluster.down(name)
    assert gone(processes)
    assert not running.directory.exists()


@kubectl_needed
def test_hollow_slices_are_ready_without_processes(name):
    running = cluster.up({"tpuv6e:4x4": 20}, name=name, idle_seconds=600, hollow=True)
    kubectl(running, "wait", "--for=condition=StartupPolicyCompleted", "jobset/pathways-cluster", "--timeout=60s")
    assert len(items(running, "pods")) == 81
    assert len(family(running.pid)) <= 5
