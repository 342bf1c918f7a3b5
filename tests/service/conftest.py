import pytest
from quiet_cluster import QuietCluster

from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.service import jobset, names, proxy_job


class Bench(QuietCluster):
    """A bench that can create the proxies of sessions."""

    async def proxy(self, client: Client, session: str, user: str = "jane", **options) -> dict:
        """Create the proxy Job of a session."""
        spec = proxy_job.ProxySpec(
            session=session,
            service=names.DEFAULT_SERVICE,
            address=jobset.address(names.DEFAULT_SERVICE),
            image="r/proxy_server:1",
            instances={"tpuv6e:2x2": 1},
            user=user,
            **options,
        )
        return await objects.create(client, objects.JOBS, proxy_job.job(spec))


@pytest.fixture
async def bench(tmp_path):
    made = Bench(tmp_path)
    await made.start()
    yield made
    await made.stop()
