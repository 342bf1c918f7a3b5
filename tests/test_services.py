"""Several services beside each other: list, deploy, follow, connect to the right one, delete."""

import json
import tempfile

import pytest
import yaml

WITH_TWO = ["--tpu", "tpuv6e:2x2=2,tpuv6e:2x4=1", "--spare", "tpuv5e:4x4=1"]
CONNECT = """
import json, sys
import jax
import pathways_jupyter

with pathways_jupyter.connect(**json.loads(sys.argv[1])) as session:
    print(json.dumps([session.record.service, len(jax.devices()), sorted(session.slices())]))
"""


@pytest.fixture(scope="module")
def home(machine):
    """The environment in which the embedded cluster has two services, and spare nodes for a third."""
    with tempfile.TemporaryDirectory(prefix="pj-") as name:
        own = {"JUPYTER_RUNTIME_DIR": name, "JUPYTER_CONFIG_DIR": name}
        up = machine.cli("local", "up", *WITH_TWO, "--fast-heal", "--json", **own)
        assert up.returncode == 0, up.stderr
        yield own
        assert machine.cli("local", "down", "--yes", **own).returncode == 0


def listed(machine, home):
    found = machine.cli("services", "--local", "--json", **home)
    assert found.returncode == 0, found.stderr
    return {each["name"]: each for each in json.loads(found.stdout)}


def connected(machine, home, **arguments):
    """The service that a script got for these arguments, its devices and its slices."""

    done = machine.python("-c", CONNECT, json.dumps({"local": True, **arguments}), **home)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr


def test_services_are_listed_with_address_type_and_image(machine, home):
    found = listed(machine, home)
    assert {"pathways-cluster", "tpuv6e-2x4"} <= set(found)
    one = found["tpuv6e-2x4"]
    assert (one["instance_type"], one["hosts_per_slice"], one["slices"], one["ready"]) == ("tpuv6e:2x4", 2, 1, 1)
    assert one["address"] == "tpuv6e-2x4-pathways-head-0-0.tpuv6e-2x4:29001"
    assert f"jax-{one['jax']}" in one["image"]
    shown = machine.cli("service", "show", "tpuv6e-2x4", "--local", **home).stdout
    assert "--service tpuv6e-2x4 --tpu tpuv6e:2x4=1" in shown


def test_connect_finds_the_only_service_with_slices_of_the_type(machine, home):
    address, devices, slices = connected(machine, home, tpu="tpuv6e:2x4=1")
    assert (address.partition("-pathways-head")[0], devices, slices) == ("tpuv6e-2x4", 8, [0])
    assert "No Pathways service in namespace default has slices of tpuv5e:4x4" in connected(
        machine, home, tpu="tpuv5e:4x4=1"
    )


def test_a_service_is_deployed_followed_used_shown_and_deleted(machine, home):
    deploy = machine.cli("service", "deploy", "mine", "--tpu", "tpuv5e:4x4", "--local", **home)
    assert deploy.returncode == 0, deploy.stderr
    steps = deploy.stderr.splitlines()
    for step in (
        "✓ jobset:",
        "✓ node pools: 1 free for tpuv5e:4x4",
        "✓ Service mine is created",
        "✓ The head is up.",
        "✓ Slice 0 is up (1 of 1).",
        "✓ Service mine is ready: 1 slice at mine-pathways-head-0-0.mine:29001.",
    ):
        assert any(line.startswith(step) for line in steps), (step, steps)
    assert steps.index("✓ The head is up.") < steps.index("✓ Slice 0 is up (1 of 1).")
    assert listed(machine, home)["mine"]["hosts_per_slice"] == 4
    address, devices, _ = connected(machine, home, tpu="tpuv5e:4x4=1")
    assert (address.partition(":")[0], devices) == ("mine-pathways-head-0-0.mine", 16)
    again = machine.cli("service", "deploy", "mine", "--tpu", "tpuv5e:4x4", "--local", **home)
    assert again.returncode == 1
    assert "There is a JobSet mine in namespace default already." in again.stderr
    # The nodes are taken: a second service is refused nothing but waits, and its wait says for what.
    second = machine.cli(
        "service", "deploy", "second", "--tpu", "tpuv5e:4x4", "--local", "--timeout", "10", "--json", **home
    )
    assert second.returncode == 1
    assert "node pools: Only 0 of 1 node pools for tpuv5e:4x4 are free: tpuv5e-4x4-0 by mine." in second.stderr
    assert "with --no-wait this command does not wait" in second.stderr
    assert "pathways-jupyter local up --spare tpuv5e:4x4=1" in second.stderr
    assert "Slice 0: host 0, waits for a node:" in second.stderr
    assert "Service second is not ready after 10 s: 1 of 1 slice is not up" in second.stderr
    asked = machine.cli("service", "delete", "mine", "--local", **home)
    assert (asked.returncode, "Not done: mine (1 slice of tpuv5e:4x4)" in asked.stderr) == (1, True)
    deleted = machine.cli("service", "delete", "mine", "--local", "--yes", **home)
    assert deleted.returncode == 0, deleted.stderr
    # Its nodes are free, so the one that waits gets them.
    waited = machine.cli("service", "wait", "second", "--local", **home)
    assert (waited.returncode, "Service second is ready" in waited.stderr) == (0, True)
    assert machine.cli("service", "delete", "second", "--local", "-y", **home).returncode == 0
    assert not {"mine", "second"} & set(listed(machine, home))


HOLD = """
import subprocess, sys
import pathways_jupyter

with pathways_jupyter.connect(local=True, tpu="tpuv6e:2x2=1"):
    for arguments in sys.argv[2:]:
        subprocess.run([sys.executable, "-c", sys.argv[1], arguments], check=False)
"""


@pytest.mark.thorough
def test_taken_slices_are_found_before_a_proxy_is_made_and_fewer_can_be_taken(machine, home):

    # By its kubeconfig, it is a cluster to which connecting adds nothing.
    kubeconfig = machine.cli("local", "kubeconfig", **home).stdout.strip()
    both = {"local": False, "kubeconfig": kubeconfig, "tpu": "tpuv6e:2x2=2"}
    done = machine.python("-c", HOLD, CONNECT, json.dumps(both), json.dumps({**both, "at_least": 1}), **home)
    assert "CapacityError: 1 of 2 slices of pathways-cluster" in done.stderr, done.stderr
    assert json.loads(done.stdout)[1:] == [4, [0]], done.stderr


@pytest.mark.thorough
def test_a_service_on_tainted_nodes_runs_as_the_account_that_it_was_given(machine, home):
    import asyncio

    from kinds import SERVICE_ACCOUNTS

    from pathways_jupyter.kube import auth, objects
    from pathways_jupyter.kube.client import Client

    kubeconfig = machine.cli("local", "kubeconfig", **home).stdout.strip()
    taint = {"key": "cloud.google.com/gke-spot", "value": "true", "effect": "NoSchedule"}

    async def change(taints, account):
        async with Client(auth.load(kubeconfig)) as client:
            nodes = (await objects.list_(client, objects.NODES, labels="cloud.google.com/gke-tpu-topology=4x4")).items
            for node in nodes:
                kept = [each for each in node["spec"].get("taints") or () if each["key"] != taint["key"]]
                await objects.patch(
                    client, objects.NODES, node["metadata"]["name"], {"spec": {"taints": kept + taints}}
                )
            if account:
                about = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "pathways"}}
                await objects.create(client, SERVICE_ACCOUNTS, about, namespace="default")

    line = ["service", "deploy", "spot", "--tpu", "tpuv5e:4x4", "--local", "--service-account", "pathways"]
    asyncio.run(change([taint], account=False))
    try:
        refused = machine.cli(*line, **home)
        assert refused.returncode == 1
        option = "--worker-tolerations cloud.google.com/gke-spot=true:NoSchedule"
        assert f"it has the taint cloud.google.com/gke-spot=true:NoSchedule ({option})" in refused.stderr
        line += [*option.split(), "--worker-annotations", "example.com/team=research group"]
        # An account that is not there is named by the cluster, in the steps of the start.
        late = machine.cli(*line, "--timeout", "5", **home)
        assert (late.returncode, 'serviceaccount "pathways" not found' in late.stderr) == (1, True), late.stderr
        asyncio.run(change([taint], account=True))
        ready = machine.cli("service", "wait", "spot", "--local", **home)
        assert (ready.returncode, "Service spot is ready" in ready.stderr) == (0, True), ready.stderr

        async def pods():
            async with Client(auth.load(kubeconfig)) as client:
                found = await objects.list_(
                    client, objects.PODS, namespace="default", labels="jobset.sigs.k8s.io/jobset-name=spot"
                )
                return found.items

        found = asyncio.run(pods())
        assert {each["spec"]["serviceAccountName"] for each in found} == {"pathways"}
        teams = [each["metadata"]["annotations"].get("example.com/team") for each in found]
        assert sorted(str(each) for each in teams) == ["None", *["research group"] * 4]
    finally:
        machine.cli("service", "delete", "spot", "--local", "--yes", **home)
        asyncio.run(change([], account=False))


LOAD = """
import pathways_jupyter

with pathways_jupyter.connect(local=True, service="pathways-cluster", tpu="tpuv6e:2x2=1") as session:
    print("beside", session.load("moving")["weights"].sum())
"""
MOVE = """
import subprocess, sys
import jax.numpy as jnp
import pathways_jupyter

def service(*words):
    subprocess.run([sys.executable, "-m", "pathways_jupyter", "service", *words, "--local"], check=True)

session = pathways_jupyter.connect(local=True, service="team", tpu="tpuv5e:4x4=1")
weights = jnp.arange(8.0)
session.save("moving", {"weights": weights})
subprocess.run([sys.executable, "-c", sys.argv[1]], check=True)
session.suspend()
service("delete", "team", "--yes")
service("deploy", "team", "--tpu", "tpuv5e:4x4")
session.resume()
print("again", weights.sum())
session.saves.delete("moving")
session.disconnect()
service("delete", "team", "--yes")
"""


@pytest.mark.thorough
def test_users_move_to_another_service_with_a_save_and_outlive_one_that_is_deployed_again(machine, home):
    deployed = machine.cli("service", "deploy", "team", "--tpu", "tpuv5e:4x4", "--local", **home)
    assert deployed.returncode == 0, deployed.stderr
    done = machine.python("-c", MOVE, LOAD, **home)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line[:6] in {"beside", "again "}] == [
        "beside 28.0",
        "again 28.0",
    ]


def test_a_dry_run_prints_what_would_be_created(machine, home):
    line = ["service", "deploy", "mine", "--tpu", "tpuv5e:4x4", "--slices", "2", "--gcs-bucket", "gs://b/c"]
    line += ["--resource-manager-options=--enable_gcs_olm=false", "--worker-options=--vmodule=x=1"]
    shown = machine.cli(*line, "--dry-run", **home)
    assert shown.returncode == 0, shown.stderr
    objects = list(yaml.safe_load_all(shown.stdout))
    assert [each["kind"] for each in objects] == ["NetworkPolicy", "NetworkPolicy", "JobSet"]
    for part, flag in zip(
        objects[-1]["spec"]["replicatedJobs"], ("--enable_gcs_olm=false", "--vmodule=x=1"), strict=True
    ):
        assert part["template"]["spec"]["template"]["spec"]["containers"][0]["args"][-1] == flag
    assert json.loads(machine.cli(*line, "--dry-run", "--json", **home).stdout)["items"] == objects
    assert "mine" not in listed(machine, home)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["mine", "--tpu", "tpuv5e:3x3"], ["no topology '3x3'", "Topologies of tpuv5e: 1x1, 2x2, 2x4, 4x4"]),
        (["mine", "--tpu", "tpuv9:2x2"], ["Unknown TPU version", "Known versions"]),
        (["mine", "--tpu", "tpuv5e:4x4=1", "--slices", "2"], ["The number of slices is given twice"]),
        (["mine", "--tpu", "tpuv5e:4x4"], ["needs a bucket"]),
        (["mine", "--tpu", "tpuv5e:4x4", "--gcs-bucket", "bucket"], ["is not a bucket address", "gs://bucket"]),
        (["Mine", "--tpu", "tpuv5e:4x4", "--local"], ["cannot be the name of a service", "at most 22"]),
        (["mine", "--tpu", "tpuv5e:4x4", "--local", "--nodes", "10.0.0.0/8"], ["only for workers on the host network"]),
        (["mine", "--tpu", "tpuv5e:4x4", "--local", "--slices", "none"], ["whole number of at least 1"]),
        (["mine", "--local"], ["No instance type was given"]),
        (
            ["mine", "--tpu", "tpuv5e:4x4", "--local", "--worker-options", "v=1"],
            ["'v=1' is not a flag", "=--NAME=VALUE"],
        ),
        # A cluster without fitting nodes.
        (
            ["mine", "--tpu", "tpuv5e:4x8", "--local"],
            ["No node pool has 8 nodes of ct5lp-hightpu-4t", "tpuv5e-4x4-0 (", "--spare tpuv5e:4x8=1"],
        ),
        (["mine", "--tpu", "tpuv6e1t:2x4", "--local"], ["No node pool has 1 node of ct6e-standard-8t"]),
        (
            ["mine", "--tpu", "tpuv5e:4x4", "--slices", "2", "--local"],
            ["there is 1: tpuv5e-4x4-0", "Ask for --slices 1"],
        ),
        (
            ["mine", "--tpu", "tpuv5e:4x4", "--head-pool", "heads", "--local"],
            ["no node pool heads", "Choose --head-pool cpu-np"],
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else value,
)
def test_what_cannot_be_deployed_is_refused_before_anything_happens(machine, home, arguments, words):
    refused = machine.cli("service", "deploy", *arguments, **home)
    assert refused.returncode == 1
    assert all(word in refused.stderr for word in words), refused.stderr
    assert "mine" not in listed(machine, home)


def test_the_magics_do_the_same(machine, home, open_notebook):
    import dataclasses

    notebook = open_notebook(dataclasses.replace(machine, environ={**machine.environ, **home}))
    notebook.run("%load_ext pathways_jupyter")
    assert "tpuv6e-2x4" in notebook.run("%pathways services --local").text
    deployed = notebook.run("%pathways service deploy noted --tpu tpuv5e:4x4 --local")
    assert "✓ Service noted is ready" in deployed.text
    assert "%pathways connect --namespace default --service noted --tpu tpuv5e:4x4=1 --local" in deployed.text
    request = notebook.client.execute("%pathways service delete noted --local", allow_stdin=False)
    unanswered = notebook.finish(request)
    assert (unanswered.error, "add --yes" in unanswered.shown) == ("ConfigError", True)
    notebook.connect("--namespace default --service noted --tpu tpuv5e:4x4=1 --local")
    seen = len(notebook.seen)
    assert "is deleted" in notebook.run("%pathways service delete noted --local --yes").text
    notebook.wait_for("All arrays on TPUs are lost", since=seen)
    assert "There is no Pathways service noted" in notebook.run("%pathways reconnect").shown
    assert notebook.run("%pathways disconnect").status == "ok"
    nothing = notebook.run("%pathways service show noted --local")
    assert "There is no Pathways service noted" in nothing.shown, nothing.text
    group = notebook.run("%pathways service")
    assert "service needs one of its commands" in group.shown
    assert "deploy, show, wait, delete" in group.shown
