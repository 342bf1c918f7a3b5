"""Label and field selectors: the text that clients send, compiled once to a test of an object."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from pathways_jupyter.local.apiserver.api_errors import bad_request
from pathways_jupyter.local.apiserver.resources import Object, ResourceType

Test = Callable[[Object], bool]

_REQUIREMENT = re.compile(
    r"\s*(?P<absent>!?)\s*(?P<key>[^\s!=(),]+)"
    r"(?:\s+(?P<set>in|notin)\s*\((?P<values>[^()]*)\)|\s*(?P<operator>==|=|!=)\s*(?P<value>[^\s!=(),]*))?\s*(?:,|$)"
)
LABEL_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")

_FIELDS: Mapping[str, tuple[str, ...]] = {
    "pods": ("spec.nodeName", "status.phase", "status.podIP"),
    "nodes": ("spec.unschedulable",),
    "events": (
        *(f"involvedObject.{field}" for field in ("kind", "namespace", "name", "uid", "apiVersion", "fieldPath")),
        *("reason", "type"),
    ),
}


def label_test(text: str) -> Test:
    """Compile a label selector such as ``app=web,tier in (a,b),!canary``.

    Raises:
      StatusError: 400, the text is not a selector.
    """
    expressions: list[Object] = []
    position = 0
    while position < len(text):
        match = _REQUIREMENT.match(text, position)
        if (
            match is None
            or not LABEL_KEY.fullmatch(match["key"])
            or (match["absent"] and (match["set"] or match["operator"]))
        ):
            raise bad_request(f"unable to parse requirement: found {text[position:]!r}, expected a label selector")
        operator, values = "DoesNotExist" if match["absent"] else "Exists", list[str]()
        if match["set"] or match["operator"]:
            operator = "In" if match["set"] == "in" or match["operator"] in ("=", "==") else "NotIn"
            values = [each.strip() for each in match["values"].split(",")] if match["set"] else [match["value"]]
        for value in values:
            if not LABEL_VALUE.fullmatch(value):
                raise bad_request(f"values: Invalid value: {value!r}: not a valid label value")
        expressions.append({"key": match["key"], "operator": operator, "values": values})
        position = match.end()
    if text.rstrip().endswith(","):
        raise bad_request(f"unable to parse requirement: {text!r} ends with a comma")
    selector = {"matchExpressions": expressions}
    return lambda obj: matches_selector(selector, labels_of(obj))


def labels_of(obj: Object) -> Mapping[str, str]:
    """Return an object's labels."""
    return obj["metadata"].get("labels") or {}


def matches_selector(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Return whether `labels` fit an object's own ``selector`` (matchLabels and matchExpressions)."""
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    for each in selector.get("matchExpressions") or ():
        key, operator = each["key"], each["operator"]
        if operator in ("In", "NotIn"):
            # A label that is absent is not among the values.
            fits = (key in labels and labels[key] in each.get("values", ())) is (operator == "In")
        else:
            fits = operator in ("Exists", "DoesNotExist") and (key in labels) is (operator == "Exists")
        if not fits:
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
        return all((_field(obj, path) == value) is equal for path, equal, value in requirements)

    return test


def _field(obj: Object, path: tuple[str, ...]) -> str:
    value: Any = obj
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
