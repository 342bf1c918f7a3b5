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


ELASTIC = {
    "apiVersion": API_VERSION,
    "kind": "PathwaysJob",
    "metadata": {"name": "pathways-jane"},
    "spec": {
        "maxRestarts": 0,
        "workers": [{"type": "ct5lp-hightpu-4t", "topology": "4x8", "numSlices": 3, "maxSliceRestarts": 2}],
        "pathwaysDir": "gs://bucket",
        "controller": {
            "deploymentMode": "default",
            "elasticSlices": 1,
            "template": {
                "spec": {
                    "containers": [
                        {
                            "name": "main",
                            "image": "registry/trainer:1",
                            "imagePullPolicy": "Always",
                            "command": ["bash", "-c", "python3 -m trainer base_output_directory=gs://bucket steps=50"],
                        }
                    ]
                }
            },
        },
    },
}
"""Elastic training on three slices of v5e-32."""

COLOCATED = {
    "apiVersion": API_VERSION,
    "kind": "PathwaysJob",
    "metadata": {"name": "pathways-colocated"},
    "spec": {
        "maxRestarts": 0,
        "customComponents": [{"componentType": "colocated_python_sidecar", "image": "registry/sidecar:1"}],
        "workers": [{"type": "ct4p-hightpu-4t", "topology": "2x2x2", "numSlices": 2}],
        "pathwaysDir": "gs://bucket/tmp",
        "controller": {
            "deploymentMode": "default",
            "mainContainerName": "main",
            "template": {
                "spec": {
                    "containers": [
                        {
                            "name": "main",
                            "image": "python:3.12",
                            "imagePullPolicy": "Always",
                            "command": ["/bin/sh", "-c", "python -c 'import jax; print(len(jax.devices()))'"],
                        }
                    ]
                }
            },
        },
    },
}
"""Colocated Python with a sidecar image of the user's."""
