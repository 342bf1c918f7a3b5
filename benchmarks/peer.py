"""One connection made by pathwaysutils' `isc_pathways.connect`, timed; prints one line of JSON.

It wants a kubeconfig whose context carries a GKE name, or it asks gcloud; the bench writes such a file, in
which only the names differ. Run as ``python -m benchmarks.peer`` with KUBECONFIG set.
"""

from __future__ import annotations

import json
import sys
import time

PROJECT, REGION, CLUSTER = "project", "region", "cluster"
CONTEXT = f"gke_{PROJECT}_{REGION}_{CLUSTER}"
SERVICE = "pathways-cluster-pathways-head-0-0.pathways-cluster:29001"


def main() -> int:
    """Connect, compute once, disconnect."""
    import jax
    from pathwaysutils.experimental.shared_pathways_service import isc_pathways

    began = time.perf_counter()
    with isc_pathways.connect(
        cluster=CLUSTER,
        project=PROJECT,
        region=REGION,
        gcs_bucket="gs://bench",
        pathways_service=SERVICE,
        expected_tpu_instances={"tpuv6e:2x2": 2},
        proxy_options=["use_insecure_credentials:true"],
    ):
        connected = time.perf_counter()
        if int(jax.numpy.arange(8).sum()) != 28:
            raise RuntimeError("The sum came back wrong.")
        computed = time.perf_counter()
    ended = time.perf_counter()
    print(json.dumps({"connect": connected - began, "result": computed - began, "disconnect": ended - computed}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
