"""The names of PathwaysJob's fields, and its CustomResourceDefinition: schema, defaults and rules.

All validation is here, so that every API server enforces it; what a client says of a job before it sends it
(:mod:`pathways_jupyter.service.pathwaysjob.validation`) leaves out the rules that relate fields. The pod template has
the schema of Kubernetes' own.

Rules that relate fields, and immutability, are CEL. A transition rule on an optional field is not evaluated when the
field is added or removed, so a second rule on its parent covers that. Every list and string that a rule reads is
bounded, because an API server refuses rules whose estimated cost is too high.
"""

from __future__ import annotations

import functools
from typing import Any

from pathways_jupyter.base import tpu
from pathways_jupyter.service import builtin_kinds, names, service_jobset

Schema = dict[str, Any]

GROUP = "pathways-job.pathways.domain"
VERSION = "v1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "PathwaysJob"
PLURAL = "pathwaysjobs"

DEFAULT_MODE = "default"
COLOCATE_MODE = "colocate_head_with_workers"
MODES = (DEFAULT_MODE, COLOCATE_MODE)

SERVER = "pathways_server"
WORKER = "worker"
PROXY = "proxy_server"
SIDECAR = "colocated_python_sidecar"
COMPONENTS = (SERVER, WORKER, PROXY, SIDECAR)

MAIN_CONTAINER = "main"
START_SUSPENDED_ANNOTATION = "pathways-jupyter/start-suspended"
"""On a PathwaysJob: create its JobSet suspended. The API has no field for that; queueing systems suspend the JobSet."""

_STRING: Schema = {"type": "string"}
_TEXT: Schema = {"type": "string", "maxLength": 1024}
_COUNT: Schema = {"type": "integer", "format": "int32", "minimum": 0}
_OPEN = "x-kubernetes-preserve-unknown-fields"
# Multiples of four in decimal: the last two digits decide.
_BY_FOUR = "([48]|[2468][048]|[13579][26]|[1-9][0-9]*([02468][048]|[13579][26]))"


def definition() -> dict[str, Any]:
    """Return the CustomResourceDefinition."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}", "labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY}},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": _columns(),
                    "schema": {"openAPIV3Schema": _root()},
                }
            ],
        },
    }


@functools.cache
def schema() -> Schema:
    """Return the schema of a whole job, with its metadata, which an API server checks by itself."""
    root = _root()
    metadata = {**builtin_kinds.schema("ObjectMeta"), "required": ["name"], _OPEN: True}
    return {**root, "properties": {**root["properties"], "metadata": metadata, "status": {_OPEN: True}}}


def _columns() -> list[Schema]:
    conditions = [
        {"name": kind, "type": "string", "jsonPath": f'.status.conditions[?(@.type=="{kind}")].status'}
        for kind in ("Completed", "Failed", "Suspended")
    ]
    return [
        {"name": "TerminalState", "type": "string", "jsonPath": ".status.terminalState"},
        *conditions,
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]


def _root() -> Schema:
    return {
        **_object(
            ("spec",), apiVersion=_STRING, kind=_STRING, metadata={"type": "object"}, spec=_spec(), status=_status()
        ),
        "x-kubernetes-validations": [
            _rule(
                f"size(self.metadata.name) <= {service_jobset.MAX_NAME} && "
                "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
                f"the name must have at most {service_jobset.MAX_NAME} lower-case letters, digits and dashes, "
                "beginning with a letter, because the names of pods begin with it",
                "",
            )
        ],
    }


def _spec() -> Schema:
    optional = ("pathwaysDir", "pathwaysVersion", "maxRestarts", "customComponents")
    return {
        **_object(
            ("workers", "controller"),
            maxRestarts=_fixed({**_COUNT}, "maxRestarts"),
            pathwaysDir=_fixed({**_TEXT, "pattern": "^(gs://.+)?$"}, "pathwaysDir"),
            pathwaysVersion=_fixed({"type": "string", "maxLength": 128}, "pathwaysVersion"),
            workers=_fixed(_keyed(_worker(), "type", minimum=1, maximum=1), "workers"),
            controller=_controller(),
            customComponents=_fixed(_keyed(_component(), "componentType", maximum=len(COMPONENTS)), "customComponents"),
        ),
        "x-kubernetes-validations": [
            *_kept(optional),
            _rule(
                "!has(self.controller.elasticSlices) || size(self.workers) == 0 || "
                "self.controller.elasticSlices <= self.workers[0].numSlices",
                "elasticSlices cannot be greater than numSlices",
                ".controller.elasticSlices",
            ),
        ],
    }


def _worker() -> Schema:
    return {
        **_object(
            ("type", "topology", "numSlices"),
            type={"type": "string", "enum": [machine.name for machine in tpu.MACHINES]},
            topology={"type": "string", "maxLength": 16},
            numSlices={**_COUNT, "minimum": 1},
            maxSliceRestarts={**_COUNT, "default": 1},
            terminationGracePeriodSeconds={"type": "integer", "format": "int64", "minimum": 0},
            priorityClassName={"type": "string", "maxLength": 253},
            nodeSelector={
                "type": "object",
                "maxProperties": 32,
                "additionalProperties": {"type": "string", "maxLength": 63},
            },
        ),
        "x-kubernetes-validations": [_topology_rule(machine) for machine in tpu.MACHINES],
    }


def _topology_rule(machine: tpu.MachineType) -> Schema:
    listed = ", ".join(f"'{each}'" for each in machine.topologies)
    valid = f"self.topology in [{listed}]"
    more = ""
    if machine.cubes:
        valid = f"({valid} || self.topology.matches('^{_BY_FOUR}x{_BY_FOUR}x{_BY_FOUR}$'))"
        more = ", or multiples of 4 along three axes"
    return _rule(
        f"self.type != '{machine.name}' || {valid}",
        f"topologies of {machine.name}: {', '.join(machine.topologies)}{more}",
        ".topology",
    )


def _controller() -> Schema:
    own = "', '".join((names.RESOURCE_MANAGER_CONTAINER, names.PROXY_CONTAINER))
    container = builtin_kinds.schema("Container")
    container = {
        **container,
        "properties": {**container["properties"], "name": {"type": "string", "maxLength": 63}},
        "x-kubernetes-validations": [
            _rule(f"!(self.name in ['{own}'])", "the name is that of one of Pathways' own containers", ".name")
        ],
    }
    pod = builtin_kinds.schema("PodSpec")
    parts = {
        **pod["properties"],
        # A Job's pods; Kubernetes refuses "Always" there, but only after the job has been accepted.
        "restartPolicy": {"type": "string", "enum": ["Never", "OnFailure"]},
        "containers": {"type": "array", "minItems": 1, "maxItems": 32, "items": container},
    }
    # They are added to pods that run; no template may have them.
    del parts["ephemeralContainers"]
    template = _object(("spec",), metadata=builtin_kinds.schema("ObjectMeta"), spec={**pod, "properties": parts})
    return {
        **_object(
            ("deploymentMode",),
            deploymentMode=_fixed({"type": "string", "enum": list(MODES)}, "deploymentMode"),
            mainContainerName=_fixed(
                {"type": "string", "maxLength": 63, "default": MAIN_CONTAINER}, "mainContainerName"
            ),
            enableMetricsCollection=_fixed({"type": "boolean"}, "enableMetricsCollection"),
            template=_fixed(template, "template"),
            elasticSlices=_fixed({**_COUNT}, "elasticSlices"),
        ),
        "x-kubernetes-validations": [
            *_kept(("enableMetricsCollection", "template", "elasticSlices")),
            _rule(
                "!has(self.template) || self.template.spec.containers.exists(c, c.name == self.mainContainerName)",
                "the template has no container of this name",
                ".mainContainerName",
            ),
        ],
    }


def _component() -> Schema:
    variable = builtin_kinds.schema("EnvVar")
    name = {"type": "string", "minLength": 1, "maxLength": 253}
    variable = {**variable, "properties": {**variable["properties"], "name": name}}
    return {
        **_object(
            ("componentType",),
            componentType={"type": "string", "enum": list(COMPONENTS)},
            image=_TEXT,
            customFlags={"type": "array", "maxItems": 256, "items": {"type": "string", "maxLength": 4096}},
            customEnv={"type": "array", "maxItems": 256, "items": variable},
        ),
        "x-kubernetes-validations": [
            _rule(
                f"self.componentType != '{SIDECAR}' || (has(self.image) && self.image != '')",
                "the sidecar has no default image",
                ".image",
            )
        ],
    }


def _status() -> Schema:
    condition = _object(
        ("type", "status"),
        type=_STRING,
        status={"type": "string", "enum": ["True", "False", "Unknown"]},
        reason=_STRING,
        message=_STRING,
        lastTransitionTime={"type": "string", "format": "date-time"},
        observedGeneration={"type": "integer", "format": "int64"},
    )
    return _object(
        conditions=_keyed(condition, "type"),
        restarts=_COUNT,
        terminalState=_STRING,
        observedGeneration={"type": "integer", "format": "int64"},
    )


def _object(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}


def _keyed(items: Schema, key: str, *, minimum: int = 0, maximum: int = 0) -> Schema:
    return {
        "type": "array",
        **({"minItems": minimum} if minimum else {}),
        **({"maxItems": maximum} if maximum else {}),
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": [key],
        "items": items,
    }


def _fixed(schema: Schema, name: str) -> Schema:
    return {**schema, "x-kubernetes-validations": [_rule("self == oldSelf", f"{name} is immutable", "")]}


def _kept(optional: tuple[str, ...]) -> list[Schema]:
    """Rules that optional fields with transition rules are neither added nor removed."""
    return [_rule(f"has(self.{name}) == has(oldSelf.{name})", f"{name} is immutable", f".{name}") for name in optional]


def _rule(rule: str, message: str, path: str) -> Schema:
    return {"rule": rule, "message": message, **({"fieldPath": path} if path else {})}
