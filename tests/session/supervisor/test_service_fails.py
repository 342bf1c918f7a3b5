"""A service that fails for good while a session waits for its slices."""

import json
import math
import shutil
import subprocess

import holders
import pytest

from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import ServiceError
from pathways_jupyter.base.events import SessionState
from pathways_jupyter.session.kernel import session

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")

DEADLINE = 60.0
TYPE = "tpuv6e:2x2"
FAILURE = {"type": "Failed", "status": "True", "reason": "ReachedMaxRestarts", "message": "too many restarts"}


@pytest.mark.thorough
def test_waiting_ends_when_the_service_fails_for_good(own_cluster):
    config = ConnectConfig(instances={TYPE: 1}, kubeconfig=str(own_cluster.kubeconfig), wait=math.inf)
    holder, _ = holders.start(config)
    try:
        waiting = session.attempt_connect(config)
        events = iter(waiting)
        while next(events).data.get("state") != SessionState.WAITING:
            pass
        patch = json.dumps({"status": {"terminalState": "Failed", "conditions": [FAILURE]}})
        words = ["patch", "jobset", "pathways-cluster", "--subresource=status", "--type=merge", "-p", patch]
        subprocess.run(
            ["kubectl", "--kubeconfig", str(own_cluster.kubeconfig), *words], check=True, capture_output=True
        )
        with pytest.raises(ServiceError, match="will not come back: its JobSet has failed for good") as failed:
            list(events)
        assert "Restart it: pathways-jupyter local down" in failed.value.hint
        assert session.current() is None
        # The session that has its slices keeps them.
        assert holder.state == SessionState.CONNECTED
    finally:
        assert holder.close(patience=DEADLINE)
