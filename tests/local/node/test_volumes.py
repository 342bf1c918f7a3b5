"""Claims: what a pod writes into its volume is there for the next pod, until the claim is deleted."""

import asyncio

from pathways_jupyter.local.apiserver.resources import PERSISTENT_VOLUME_CLAIMS, PODS
from pathways_jupyter.local.node.volumes import VolumeCleaner

CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def phase(*wanted):
    return lambda pod: pod is not None and pod["status"]["phase"] in wanted


def waits_for_claim(pod):
    (status,) = pod["status"].get("containerStatuses") or ({"state": {}},)
    return status["state"].get("waiting", {}).get("reason") == "CreateContainerConfigError"


def mounted(machine, name, *command):
    return machine.pod(
        name,
        *command,
        container={
            "volumeMounts": [{"name": "home", "mountPath": "/home/jane"}],
            "workingDir": "/home/jane",
            "env": [{"name": "HOME", "value": "/home/jane"}, {"name": "NOTES", "value": "/home/jane/notes"}],
        },
        volumes=[{"name": "home", "persistentVolumeClaim": {"claimName": "home"}}],
    )


async def test_a_volume_outlives_its_pods_and_ends_with_its_claim(machine, tmp_path):
    claim = machine.create(PERSISTENT_VOLUME_CLAIMS, "home", spec=CLAIM)
    assert claim["status"]["phase"] == "Bound"
    mounted(machine, "first", "sh", "-c", "mkdir $NOTES && echo kept > $HOME/notes/file && pwd -P")
    await machine.until(phase("Succeeded"), "first")
    volume = tmp_path / "volumes" / claim["metadata"]["uid"]
    assert await machine.logs("first") == f"{volume}\n"
    machine.store.delete(PODS, "default", "first")
    await machine.until_gone("first")
    mounted(machine, "second", "cat", "notes/file")
    await machine.until(phase("Succeeded"), "second")
    assert await machine.logs("second") == "kept\n"

    cleaner = VolumeCleaner(machine.store, tmp_path)
    cleaner.start()
    assert volume.exists()
    machine.store.delete(PERSISTENT_VOLUME_CLAIMS, "default", "home")
    async with asyncio.timeout(60):
        await asyncio.to_thread(lambda: [None for _ in iter(volume.exists, False)])
    await cleaner.close()


async def test_a_pod_waits_for_its_claim(machine):
    mounted(machine, "early", "true")
    await machine.until(waits_for_claim, "early")
    machine.create(PERSISTENT_VOLUME_CLAIMS, "home", spec=CLAIM)
    await machine.until(phase("Succeeded"), "early")
