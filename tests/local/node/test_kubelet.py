from __future__ import annotations

import asyncio
import os

import pytest
from waits import has_ended, wait_until

from pathways_jupyter.local.apiserver.printing import pod_status
from pathways_jupyter.local.apiserver.resources import EVENTS, PODS
from pathways_jupyter.local.node import programs
from pathways_jupyter.local.settings import HOLLOW_ANNOTATION

DEADLINE = 60.0
SLEEP = ("sleep", "600")


def phase(*wanted):
    return lambda pod: pod is not None and pod["status"]["phase"] in wanted


def ready(pod):
    conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions", ())} if pod else {}
    return conditions.get("Ready") == "True"


def waiting(reason):
    return lambda pod: reason == first(pod)["state"].get("waiting", {}).get("reason")


def first(pod):
    return pod["status"].get("containerStatuses", [{"state": {}}])[0]


def reasons(machine):
    return {event["reason"] for event in machine.store.list(EVENTS)}


async def execute(machine, name, *command, container="", text=None, **options):
    uid = machine.store.get(PODS, "default", name)["metadata"]["uid"]
    execution = await machine.kubelet.exec(
        uid, container, list(command), **{"stdin": text is not None, "tty": False, **options}
    )
    if text is not None:
        execution.stdin.write(text.encode())
        execution.stdin.close()
    async with asyncio.timeout(DEADLINE):
        out = (await execution.stdout.read()).decode()
        errors = (await execution.stderr.read()).decode() if execution.stderr else ""
        return await execution.wait(), out, errors


async def test_a_pod_runs_to_its_end_and_its_directory_goes_with_it(machine, tmp_path):
    machine.pod("once", "sh", "-c", "echo hello; echo oops >&2; pwd > file")
    pod = await machine.until(phase("Succeeded"), "once")
    assert first(pod)["state"]["terminated"]["reason"] == "Completed"
    assert await machine.logs("once") == "hello\noops\n"
    directory = tmp_path / "pods" / pod["metadata"]["uid"]
    assert (directory / "root" / "file").read_text() == f"{directory}/root\n"
    machine.store.delete(PODS, "default", "once")
    await machine.until_gone("once")
    await asyncio.to_thread(lambda: [None for _ in iter(directory.exists, False)])
    assert {"Started"} <= reasons(machine)


async def test_a_proxy_with_variables_for_jax_is_not_forked_from_a_process_that_has_imported_jax(machine):
    image = {"image": programs.reference("proxy_server"), "command": []}
    # This machine's fork server with JAX does not run, so that what needs it cannot start.
    machine.pod("plain", container=image)
    plain = await machine.until(phase("Failed"), "plain")
    assert first(plain)["state"]["terminated"]["reason"] == "StartError"
    machine.pod("set", container={**image, "env": [{"name": "JAX_ENABLE_X64", "value": "1"}]})
    ended = await machine.until(phase("Failed"), "set")
    assert first(ended)["state"]["terminated"]["exitCode"] == 2
    assert "--resource_manager_address" in await machine.logs("set")


async def test_a_command_in_a_proxy_ends_with_it(machine):
    warm = machine.kubelet.spawners[True]
    warm.start()
    waits = ["--resource_manager_address=nowhere:29001", "--virtual_slices=tpuv6e:2x2"]
    machine.pod("proxy", container={"image": programs.reference("proxy_server"), "command": [], "args": waits})
    try:
        pod = await machine.until(ready, "proxy")
        command = ["sh", "-c", "echo $$; exec sleep 600"]
        execution = await machine.kubelet.exec(pod["metadata"]["uid"], "main", command, stdin=False, tty=False)
        pid = int(await execution.stdout.readline())
        machine.store.delete(PODS, "default", "proxy", grace=0)
        await asyncio.to_thread(wait_until, lambda: has_ended(pid), DEADLINE)
    finally:
        await warm.close()


async def test_a_container_sees_its_pod_and_nothing_of_the_daemon(machine, monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_DAEMON", "x")
    machine.pod(
        "env",
        "python",
        "-c",
        "import os; [print(k, v) for k, v in os.environ.items()]",
        container={"env": [{"name": "WHERE", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]},
    )
    pod = await machine.until(phase("Succeeded"), "env")
    variables = dict(line.split(" ", 1) for line in (await machine.logs("env")).splitlines())
    assert variables["POD_IP"] == variables["WHERE"] == pod["status"]["podIP"]
    assert variables["HOME"].endswith("/root")
    assert "SECRET_OF_THE_DAEMON" not in variables
    assert os.readlink(machine.network.names("default") / "env") == variables["PATHWAYS_LOCAL_SOCKETS"]


@pytest.mark.parametrize(("policy", "restarts"), [("OnFailure", True), ("Never", False)])
async def test_the_restart_policy_is_followed(machine, policy, restarts):
    machine.pod("p", "sh", "-c", "echo try; test -e again && exec sleep 600; touch again; exit 1", restartPolicy=policy)
    again = lambda pod: first(pod).get("restartCount") == 1 and ready(pod)  # noqa: E731
    pod = await machine.until(again if restarts else phase("Failed"), "p")
    assert first(pod)["restartCount"] == int(restarts)
    if restarts:
        assert first(pod)["lastState"]["terminated"]["exitCode"] == 1
        assert await machine.logs("p", previous=True) == "try\n"


async def test_a_container_that_keeps_failing_is_restarted_ever_later(machine):
    machine.pod("crash", "false", restartPolicy="Always")
    pod = await machine.until(waiting("CrashLoopBackOff"), "crash")
    assert first(pod)["restartCount"] == 1
    assert pod["status"]["phase"] == "Running"
    machine.store.delete(PODS, "default", "crash")
    await machine.until_gone("crash")


@pytest.mark.parametrize("grace", [1, 0])
async def test_a_pod_that_ignores_sigterm_is_killed_after_its_grace_period(machine, grace):
    ignore = "import signal, sys; signal.signal(15, signal.SIG_IGN); print('on', flush=True); signal.pause()"
    machine.pod("stubborn", "python", "-c", f"{ignore}\nwhile True: signal.pause()")
    pod = await machine.until(ready, "stubborn")
    uid = pod["metadata"]["uid"]
    async for piece in machine.kubelet.logs(
        uid, "", follow=True, tail=None, previous=False, since=None, timestamps=False
    ):
        assert piece == b"on\n"
        break
    code, out, _ = await execute(machine, "stubborn", "sh", "-c", "echo $PATHWAYS_LOCAL_MAIN_PID")
    assert code == 0
    machine.store.delete(PODS, "default", "stubborn", grace=grace)
    await machine.until_gone("stubborn")
    await asyncio.to_thread(wait_until, lambda: has_ended(int(out)), DEADLINE)


async def test_a_pod_ends_gracefully_when_it_can(machine):
    trap = "trap 'echo bye; exit 0' TERM; touch on; while :; do sleep 0.01; done"
    machine.pod(
        "polite",
        "sh",
        "-c",
        trap,
        container={"readinessProbe": {"exec": {"command": ["test", "-e", "on"]}}},
        metadata={"finalizers": ["test/keep"]},
    )
    await machine.until(ready, "polite")
    machine.store.delete(PODS, "default", "polite")
    pod = await machine.until(phase("Succeeded"), "polite")
    assert first(pod)["state"]["terminated"]["exitCode"] == 0
    assert await machine.logs("polite") == "bye\n"
    machine.store.edit(PODS, "default", "polite", lambda obj: obj["metadata"].pop("finalizers"))
    await machine.until_gone("polite")


async def test_exec_has_streams_a_directory_and_an_exit_code(machine):
    machine.pod("p", *SLEEP)
    await machine.until(ready, "p")
    assert await execute(machine, "p", "sh", "-c", "cat > file; exit 3", text="content") == (3, "", "")
    assert await execute(machine, "p", "cat", "file", "none") == (
        1,
        "content",
        "cat: none: No such file or directory\n",
    )
    big = "x" * 3_000_000
    assert await execute(machine, "p", "cat", text=big) == (0, big, "")
    with pytest.raises(OSError, match=r'"nothing": executable file not found in \$PATH'):
        await execute(machine, "p", "nothing")
    with pytest.raises(LookupError):
        await execute(machine, "p", "true", container="none")


async def test_exec_on_a_terminal_knows_its_size(machine):
    machine.pod("p", *SLEEP)
    pod = await machine.until(ready, "p")
    execution = await machine.kubelet.exec(pod["metadata"]["uid"], "", ["sh"], stdin=True, tty=True)
    execution.resize(91, 17)
    execution.stdin.write(b"stty size; tty; exit 4\n")
    async with asyncio.timeout(DEADLINE):
        text = (await execution.stdout.read()).decode()
        assert await execution.wait() == 4
    assert "17 91" in text
    assert "/dev/" in text
    execution.stdin.close()


async def test_an_exec_can_be_killed_and_ends_with_its_pod(machine):
    pod = machine.pod("p", *SLEEP)
    await machine.until(ready, "p")
    uid = pod["metadata"]["uid"]
    one, two = [await machine.kubelet.exec(uid, "main", list(SLEEP), stdin=False, tty=False) for _ in range(2)]
    one.kill()
    assert await asyncio.wait_for(one.wait(), DEADLINE) == 137
    machine.store.delete(PODS, "default", "p", grace=0)
    assert await asyncio.wait_for(two.wait(), DEADLINE) == 137


async def test_an_unknown_image_is_reported(machine):
    machine.pod("p", container={"image": "registry.example/none:1", "command": []})
    pod = await machine.until(waiting("ErrImagePull"), "p")
    assert "registry.example/none:1" in first(pod)["state"]["waiting"]["message"]
    pod = await machine.until(waiting("ImagePullBackOff"), "p")
    assert pod["status"]["phase"] == "Pending"
    with pytest.raises(LookupError, match="waiting to start: ImagePullBackOff"):
        await machine.logs("p")
    assert "Failed" in reasons(machine)
    machine.store.delete(PODS, "default", "p")
    await machine.until_gone("p")


async def test_a_sidecar_whose_image_is_unknown_keeps_its_pod_from_being_initialized(machine):
    sidecar = {"name": "beside", "image": "registry.example/none:1", "restartPolicy": "Always"}
    machine.pod("p", *SLEEP, initContainers=[sidecar])
    pod = await machine.until(lambda pod: pod_status(pod) == "Init:ImagePullBackOff", "p")
    assert "registry.example/none:1" in pod["status"]["initContainerStatuses"][0]["state"]["waiting"]["message"]
    conditions = {each["type"]: each for each in pod["status"]["conditions"]}
    assert (conditions["Initialized"]["status"], conditions["Initialized"]["message"]) == (
        "False",
        "containers with incomplete status: [beside]",
    )


async def test_an_unknown_command_is_reported(machine):
    machine.pod("p", "no-such-command")
    pod = await machine.until(phase("Failed"), "p")
    terminated = first(pod)["state"]["terminated"]
    assert (terminated["exitCode"], terminated["reason"]) == (128, "StartError")
    assert "no-such-command" in terminated["message"]


async def test_a_missing_config_map_is_reported_and_looked_for_again(machine):
    from pathways_jupyter.local.apiserver.resources import CONFIG_MAPS

    source = {"configMapKeyRef": {"name": "late", "key": "word"}}
    machine.pod("p", "sh", "-c", "echo $WORD", container={"env": [{"name": "WORD", "valueFrom": source}]})
    pod = await machine.until(waiting("CreateContainerConfigError"), "p")
    assert first(pod)["state"]["waiting"]["message"] == 'configmap "late" not found'
    machine.store.create(CONFIG_MAPS, {"metadata": {"name": "late"}, "data": {"word": "here"}}, namespace="default")
    await machine.until(phase("Succeeded"), "p")
    assert await machine.logs("p") == "here\n"


async def test_the_working_directory_lies_in_the_pods_own(machine):
    machine.pod("p", "pwd", container={"workingDir": "/app/data"})
    pod = await machine.until(phase("Succeeded"), "p")
    assert (await machine.logs("p")).endswith(f"pods/{pod['metadata']['uid']}/root/app/data\n")


async def test_a_volume_that_is_not_mounted_is_reported(machine):
    machine.pod("p", "true", volumes=[{"name": "a", "emptyDir": {}}, {"name": "b", "configMap": {"name": "x"}}])
    await machine.until(phase("Succeeded"), "p")
    assert "without b" in next(e["message"] for e in machine.store.list(EVENTS) if e["reason"] == "FailedMount")


async def test_a_pod_is_ready_once_its_port_accepts(machine):
    listen = (
        "import os, socket, signal\n"
        "server = socket.socket(socket.AF_UNIX)\n"
        "server.bind(os.environ['PATHWAYS_LOCAL_SOCKETS'] + '/8080'); server.listen(); signal.pause()"
    )
    machine.pod("p", "python", "-c", listen, container={"readinessProbe": {"tcpSocket": {"port": 8080}}})
    pod = await machine.until(phase("Running"), "p")
    assert not ready(pod)
    pod = await machine.until(ready, "p")
    _, writer = await machine.kubelet.dial(pod["metadata"]["uid"], 8080)
    writer.close()
    with pytest.raises(OSError, match="Connect call failed"):
        await machine.kubelet.dial(pod["metadata"]["uid"], 8081)
    machine.store.delete(PODS, "default", "p")
    await machine.until_gone("p")
    with pytest.raises(LookupError):
        await machine.kubelet.dial(pod["metadata"]["uid"], 8080)


async def test_a_container_whose_liveness_probe_fails_is_restarted(machine):
    probe = {"exec": {"command": ["test", "!", "-e", "sick"]}, "periodSeconds": 1, "failureThreshold": 1}
    machine.pod(
        "p",
        "sh",
        "-c",
        "test -e sick && { rm sick; exec sleep 600; }; touch sick; exec sleep 600",
        container={"livenessProbe": probe},
        restartPolicy="Always",
    )
    pod = await machine.until(lambda pod: first(pod).get("restartCount") == 1 and ready(pod), "p")
    assert first(pod)["lastState"]["terminated"]["exitCode"] == 137
    assert "Unhealthy" in reasons(machine)


async def test_init_containers_come_first_and_sidecars_stay_until_the_last(machine):
    def init(name, script, **more):
        return {"name": name, "image": "x", "command": ["sh", "-c", script], **more}

    sidecar = init(
        "side", "trap 'echo last >> order; exit' TERM; echo side >> order; touch up; while :; do sleep 0.01; done"
    )
    sidecar |= {"restartPolicy": "Always", "startupProbe": {"exec": {"command": ["test", "-e", "up"]}}}
    machine.pod(
        "p",
        "sh",
        "-c",
        "echo main >> order; cat order",
        initContainers=[init("first", "echo first >> order"), sidecar],
    )
    pod = await machine.until(phase("Succeeded"), "p")
    assert (await machine.logs("p")).split() == ["first", "side", "main"]
    assert [each["name"] for each in pod["status"]["initContainerStatuses"]] == ["first", "side"]


async def test_a_failing_init_container_fails_the_pod(machine):
    init = {"name": "first", "image": "x", "command": ["false"]}
    machine.pod("p", *SLEEP, initContainers=[init])
    pod = await machine.until(phase("Failed"), "p")
    assert first(pod)["state"] == {"waiting": {"reason": "PodInitializing"}}


async def test_a_hollow_pod_is_ready_without_a_process(machine):
    machine.pod("p", *SLEEP, metadata={"annotations": {HOLLOW_ANNOTATION: "true"}})
    pod = await machine.until(ready, "p")
    assert pod["status"]["phase"] == "Running"
    with pytest.raises(LookupError):
        await machine.logs("p")
    machine.store.delete(PODS, "default", "p")
    await machine.until_gone("p")


async def test_a_flood_of_pods_starts_and_ends(machine):
    for number in range(20):
        machine.pod(f"p{number}", *SLEEP, metadata={"labels": {"flood": "yes"}})
    for number in range(20):
        await machine.until(ready, f"p{number}")
    pods = [machine.store.get(PODS, "default", f"p{number}") for number in range(20)]
    assert len({pod["status"]["podIP"] for pod in pods}) == 20
    for number in range(20):
        machine.store.delete(PODS, "default", f"p{number}", grace=0)
    for number in range(20):
        await machine.until_gone(f"p{number}")
