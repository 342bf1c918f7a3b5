"""The CustomResourceDefinition of PathwaysJob: its schema, defaults and rules.

All validation is here, so that every API server enforces it; :func:`check` is for a job that is expanded into a JobSet
without one, and leaves out the rules that relate fields. Rules that relate fields, and immutability, are CEL. A
transition rule on an optional field is not evaluated when the field is added or removed, so a second rule on its
parent covers that. Every list and string that a rule reads is bounded, because an API server refuses rules whose
estimated cost is too high.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pathways_jupyter.base import tpu
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.service import names, service_jobset
from pathways_jupyter.service.pathwaysjob import fields

Schema = dict[str, Any]

_STRING: Schema = {"type": "string"}
_TEXT: Schema = {"type": "string", "maxLength": 1024}
_COUNT: Schema = {"type": "integer", "format": "int32", "minimum": 0}
_STRINGS: Schema = {"type": "object", "additionalProperties": _STRING}
# Multiples of four in decimal: the last two digits decide.
_BY_FOUR = "([48]|[2468][048]|[13579][26]|[1-9][0-9]*([02468][048]|[13579][26]))"
_SHOWN = 10
_NOUNS: Mapping[str, tuple[type, str]] = {
    "object": (dict, "a mapping"),
    "array": (list, "a list"),
    "string": (str, "a text"),
    "integer": (int, "a whole number"),
    "boolean": (bool, "true or false"),
}


def definition() -> dict[str, Any]:
    """Return the CustomResourceDefinition."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{fields.PLURAL}.{fields.GROUP}", "labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY}},
        "spec": {
            "group": fields.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": fields.KIND,
                "listKind": f"{fields.KIND}List",
                "plural": fields.PLURAL,
                "singular": fields.KIND.lower(),
            },
            "versions": [
                {
                    "name": fields.VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": _columns(),
                    "schema": {"openAPIV3Schema": _root()},
                }
            ],
        },
    }


def schema() -> Schema:
    """Return the schema of a whole job, with those parts of its metadata and its pod that the expansion reads."""
    root = _root()
    metadata = _open(("name",), name=_STRING, namespace=_STRING, labels=_STRINGS, annotations=_STRINGS)
    return {**root, "properties": {**root["properties"], "metadata": metadata, "status": _open()}}


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
            customComponents=_fixed(
                _keyed(_component(), "componentType", maximum=len(fields.COMPONENTS)), "customComponents"
            ),
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


def _topology_rule(machine: tpu.Machine) -> Schema:
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
    # Of a pod, what is read when the job is expanded. The API server checks the rest when the pod is made.
    variables = {"type": "array", "items": _open(("name",), name=_STRING)}
    container = {
        **_open(("name",), name={"type": "string", "maxLength": 63}, env=variables),
        "x-kubernetes-validations": [
            _rule(f"!(self.name in ['{own}'])", "the name is that of one of Pathways' own containers", ".name")
        ],
    }
    pod = _open(
        ("containers",),
        # A Job's pods; Kubernetes refuses "Always" there, but only after the job has been accepted.
        restartPolicy={"type": "string", "enum": ["Never", "OnFailure"]},
        containers={"type": "array", "minItems": 1, "maxItems": 32, "items": container},
        initContainers={"type": "array", "items": _open(("name",), name=_STRING)},
        tolerations={"type": "array", "items": _open()},
        affinity=_open(),
    )
    template = _open(("spec",), metadata=_open(labels=_STRINGS, annotations=_STRINGS), spec=pod)
    return {
        **_object(
            ("deploymentMode",),
            deploymentMode=_fixed({"type": "string", "enum": list(fields.MODES)}, "deploymentMode"),
            mainContainerName=_fixed(
                {"type": "string", "maxLength": 63, "default": fields.MAIN_CONTAINER}, "mainContainerName"
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
    return {
        **_object(
            ("componentType",),
            componentType={"type": "string", "enum": list(fields.COMPONENTS)},
            image=_TEXT,
            customFlags={"type": "array", "maxItems": 256, "items": {"type": "string", "maxLength": 4096}},
            customEnv={
                "type": "array",
                "maxItems": 256,
                "items": _open(("name",), name={"type": "string", "minLength": 1, "maxLength": 253}),
            },
        ),
        "x-kubernetes-validations": [
            _rule(
                f"self.componentType != '{fields.SIDECAR}' || (has(self.image) && self.image != '')",
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


def _open(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    """An object that may have other fields too."""
    return {**_object(required, **properties), "x-kubernetes-preserve-unknown-fields": True}


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


@dataclass(frozen=True)
class Problem:
    """Something that is wrong with a job: the path of the field, empty if none is named, and why."""

    path: str
    message: str


class InvalidJob(ConfigError):
    """The job is refused; `problems` says where."""

    def __init__(self, message: str, problems: Sequence[Problem], *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.problems = tuple(problems)


def check(manifest: Mapping[str, Any], *, strict: bool = False) -> None:
    """Check that a job fits the schema of its definition.

    Args:
      strict: Refuse fields that the definition does not have.

    Raises:
      InvalidJob: It does not.
    """
    found = list(_problems(schema(), dict(manifest), "", strict))[:_SHOWN]
    if found:
        raise InvalidJob("; ".join(f"{each.path}: {each.message}" for each in found) + ".", found)


def _problems(schema: Schema, value: Any, path: str, strict: bool) -> Iterator[Problem]:
    kind, noun = _NOUNS[schema["type"]]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        yield Problem(path, f"must be {noun}")
    elif isinstance(value, int) and kind is int:
        least, most = schema.get("minimum", 0), 2 ** (31 if schema["format"] == "int32" else 63) - 1
        if not least <= value <= most:
            yield Problem(path, f"must be from {least} to {most}")
    elif "enum" in schema and value not in schema["enum"]:
        yield Problem(path, f"must be one of {', '.join(schema['enum'])}")
    elif "pattern" in schema and not re.search(schema["pattern"], str(value)):
        yield Problem(path, f"must match {schema['pattern']}")
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _problems(schema["items"], each, f"{path}[{number}]", strict)
    elif isinstance(value, dict):
        # A null counts as absent, as it does for an API server.
        given = {key: each for key, each in value.items() if each is not None}
        for key in schema.get("required", ()):
            if key not in given:
                yield Problem(f"{path}.{key}".lstrip("."), "is missing")
        known, others = schema.get("properties") or {}, schema.get("additionalProperties")
        for key, each in given.items():
            inner = known.get(key, others)
            if inner is not None:
                yield from _problems(inner, each, f"{path}.{key}".lstrip("."), strict)
            elif strict and not schema.get("x-kubernetes-preserve-unknown-fields"):
                yield Problem(f"{path}.{key}".lstrip("."), "unknown field")
