"""Label and field selectors: the text that clients send, compiled once to a test of an object."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from pathways_jupyter.local.apiserver.api_errors import bad_request
from pathways_jupyter.local.apiserver.resources import Object, ResourceType

Test = Callable[[Object], bool]

_SET = re.compile(r"\s*(?P<key>[^\s!=(),]+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)\s*(?:,|$)")
_EQUAL = re.compile(r"\s*(?P<key>[^\s!=(),]+)\s*(?P<operator>==|=|!=)\s*(?P<value>[^\s!=(),]*)\s*(?:,|$)")
_EXISTS = re.compile(r"\s*(?P<absent>!?)\s*(?P<key>[^\s!=(),]+)\s*(?:,|$)")
_KEY = re.compile(r"([a-z0-9A-Z]([-a-z0-9A-Z.]{0,251}[a-z0-9A-Z])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")

_FIELDS: Mapping[str, tuple[str, ...]] = {
    "pods": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "secrets": ("type",),
    "services": ("spec.clusterIP", "spec.type"),
    "jobs": ("status.successful",),
    "events": (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
}


def label_test(text: str) -> Test:
    """Compile a label selector such as ``app=web,tier in (a,b),!canary``.

    Raises:
      StatusError: 400, the text is not a selector.
    """
    tests: list[Callable[[Mapping[str, str]], bool]] = []
    position = 0
    while position < len(text):
        match = _SET.match(text, position) or _EQUAL.match(text, position) or _EXISTS.match(text, position)
        if match is None or not _KEY.fullmatch(match["key"]):
            raise bad_request(f"unable to parse requirement: found {text[position:]!r}, expected a label selector")
        tests.append(_label_requirement(match))
        position = match.end()
    if text.rstrip().endswith(","):
        raise bad_request(f"unable to parse requirement: {text!r} ends with a comma")

    def test(obj: Object) -> bool:
        labels = obj["metadata"].get("labels") or {}
        return all(each(labels) for each in tests)

    return test


def matches_selector(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether `labels` fit an object's own ``selector`` (matchLabels and matchExpressions)."""
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    for each in selector.get("matchExpressions") or ():
        value = labels.get(each["key"])
        fits = {
            "In": value is not None and value in each.get("values", ()),
            "NotIn": value is None or value not in each.get("values", ()),
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }
        if not fits.get(each["operator"], False):
            return False
    return True


def field_test(text: str, resource: ResourceType) -> Test:
    """Compile a field selector such as ``status.phase=Running,metadata.name!=x``.

    Raises:
      StatusError: 400, the text is not a selector or names a field that `resource` cannot select by.
    """
    supported = {"metadata.name", "metadata.namespace", *_FIELDS.get(resource.plural, ())}
    requirements: list[tuple[tuple[str, ...], bool, str]] = []
    for part in filter(None, text.split(",")):
        operator = next((each for each in ("!=", "==", "=") if each in part), None)
        if operator is None:
            raise bad_request(f"invalid field selector: {part!r}; can't understand {part!r}")
        key, _, value = (each.strip() for each in part.partition(operator))
        if key not in supported:
            raise bad_request(f"field label not supported: {key}")
        requirements.append((tuple(key.split(".")), operator != "!=", value))

    def test(obj: Object) -> bool:
        return all((_field(obj, path) == value) is wanted for path, wanted, value in requirements)

    return test


def all_of(*tests: Test | None) -> Test | None:
    """One test of all the given ones; None when there is nothing to test."""
    real = [each for each in tests if each is not None]
    if len(real) < 2:
        return real[0] if real else None
    return lambda obj: all(each(obj) for each in real)


def _label_requirement(match: re.Match[str]) -> Callable[[Mapping[str, str]], bool]:
    key, groups = match["key"], match.groupdict()
    if "values" in groups:
        values = frozenset(each.strip() for each in groups["values"].split(","))
        _check_values(values)
        if groups["operator"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if "value" in groups:
        value = groups["value"]
        _check_values([value])
        if groups["operator"] == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    absent = bool(groups["absent"])
    return lambda labels: (key in labels) is not absent


def _check_values(values: Any) -> None:
    for each in values:
        if not _VALUE.fullmatch(each):
            raise bad_request(f"values: Invalid value: {each!r}: not a valid label value")


def _field(obj: Object, path: tuple[str, ...]) -> str:
    value: Any = obj
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return str(value.get("component", ""))
    return "" if value is None else str(value)
