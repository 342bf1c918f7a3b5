"""PathwaysJobs of the kinds that people run."""

import copy

API_VERSION = "pathways-job.pathways.domain/v1"


def training(name="train", *command, image="python:3.12", slices=1, machine="ct6e-standard-4t", topology="2x2", **spec):
    """A job with a user container, in default mode."""
    made = headless(name, slices=slices, machine=machine, topology=topology, **spec)
    main = {"name": "main", "image": image, "command": list(command) or ["python", "-c", "print('hello')"]}
    made["spec"]["controller"]["template"] = {"spec": {"containers": [main]}}
    return made


def headless(name="headless", *, slices=1, machine="ct6e-standard-4t", topology="2x2", **spec):
    return {
        "apiVersion": API_VERSION,
        "kind": "PathwaysJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "workers": [{"type": machine, "topology": topology, "numSlices": slices}],
            "pathwaysDir": "gs://bucket/tmp",
            "controller": {"deploymentMode": "default"},
            **copy.deepcopy(spec),
        },
    }
