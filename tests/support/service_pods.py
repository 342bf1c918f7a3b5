"""Pods of a service, as a cluster would describe them."""

from pathways_jupyter.service import names

SERVICE = "pathways-cluster"


def pod(
    job, index, host=0, *, phase="Running", ready=True, deleted=False, name="", created="2026-01-01T00:00:00Z", **st
):
    metadata = {
        "name": name or f"{SERVICE}-{job}-{index}-{host}-abcde",
        "namespace": "default",
        "creationTimestamp": created,
        "labels": {
            names.JOBSET_NAME_LABEL: SERVICE,
            names.REPLICATED_JOB_LABEL: job,
            names.JOB_INDEX_LABEL: str(index),
            names.POD_INDEX_LABEL: str(host),
        },
    }
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": f"{SERVICE}-{job}-{index}",
        "uid": "u",
        "controller": True,
    }
    metadata["ownerReferences"] = [owner]
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:01Z"
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {
        "metadata": metadata,
        "spec": {"nodeName": f"node-{index}-{host}"},
        "status": {"phase": phase, "conditions": conditions, **st},
    }
