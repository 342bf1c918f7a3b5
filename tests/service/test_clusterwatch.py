import asyncio

from permissions import documented_rules

from pathways_jupyter import tpu
from pathways_jupyter.kube import auth, objects
from pathways_jupyter.service import jobset
from pathways_jupyter.service.clusterwatch import ClusterWatch

DEADLINE = 60.0


async def test_the_documented_role_is_enough_to_see_a_service_come(bench):
    watch = ClusterWatch(auth.load(bench.kubeconfig(rules=documented_rules(), name="user")))
    told: asyncio.Queue[dict] = asyncio.Queue()

    async def until(true) -> None:
        async with asyncio.timeout(DEADLINE):
            while not true(message := await told.get()):
                assert message.get("problem") is None

    watch.add(told.put_nowait)
    try:
        await until(lambda message: message.get("hearing") == "live")
        async with bench.client(name="admin") as client:
            spec = jobset.ServiceSpec(tpu.parse_instance_type("tpuv6e:2x2"), 2, "r/server:1", name="late")
            await objects.create(client, objects.JOBSETS, jobset.manifest(spec), namespace="default")
        await until(lambda message: "default/late" in [row["id"] for row in message.get("put", {}).get("services", ())])
    finally:
        await watch.close()
