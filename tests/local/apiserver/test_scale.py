from __future__ import annotations

import asyncio
import json

from pathways_jupyter.local.apiserver.resources import PODS

PATH = "/api/v1/namespaces/default/pods"


async def test_a_thousand_pods_reach_twenty_watchers_each_in_order(bench, pod_manifest) -> None:
    count = 1_000

    async def watch(ready: asyncio.Event, selector: str) -> list[str]:
        names = []
        path = f"{PATH}?watch=1&resourceVersion={bench.store.revision}&labelSelector={selector}"
        async with bench.request("GET", path) as response:
            ready.set()
            while len(names) < count:
                names.append(json.loads(await response.content.readline())["object"]["metadata"]["name"])
        return names

    ready = [asyncio.Event() for _ in range(20)]
    watchers = [asyncio.create_task(watch(each, "a=b" if i % 2 else "")) for i, each in enumerate(ready)]
    for each in ready:
        await each.wait()
    for number in range(count):
        bench.store.create(PODS, pod_manifest(f"p{number}", a="b"))
        if number % 50 == 0:
            await asyncio.sleep(0)

    expected = [f"p{number}" for number in range(count)]
    assert all(names == expected for names in await asyncio.gather(*watchers))


async def test_five_thousand_pods_are_listed_and_paged(bench, pod_manifest) -> None:
    for number in range(5_000):
        bench.store.create(PODS, pod_manifest(f"p{number}", slice=str(number // 4)))

    _, everything = await bench.call("GET", PATH)
    assert len(everything["items"]) == 5_000
    _, one = await bench.call("GET", f"{PATH}?labelSelector=slice=17")
    assert len(one["items"]) == 4
    _, page = await bench.call("GET", f"{PATH}?limit=500")
    assert (len(page["items"]), page["metadata"]["remainingItemCount"]) == (500, 4_500)
