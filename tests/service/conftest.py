import pytest
from quiet_cluster import QuietCluster


@pytest.fixture
async def bench(tmp_path):
    made = QuietCluster(tmp_path)
    await made.start()
    yield made
    await made.stop()
