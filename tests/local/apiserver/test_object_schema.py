"""Shapes of the objects that clients send."""

from __future__ import annotations

import pytest

from pathways_jupyter.local.apiserver.api_errors import StatusError
from pathways_jupyter.local.apiserver.object_schema import check_object
from pathways_jupyter.local.apiserver.resources import CONFIG_MAPS, LEASES, PODS, SERVICES

POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main"}]}}


def test_what_fits_passes_unchanged_but_for_nulls():
    sent = {**POD, "spec": {**POD["spec"], "nodeName": None}}
    assert check_object(PODS, sent, "Strict") == (POD, [])


def test_a_field_that_a_kind_does_not_have_is_refused_reported_or_dropped():
    sent = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "imagee": "x"}]}, "specs": 1}
    with pytest.raises(StatusError, match="strict decoding error: unknown field") as refused:
        check_object(PODS, sent, "Strict")
    assert refused.value.status == 400
    fields = ['unknown field "spec.containers[0].imagee"', 'unknown field "specs"']
    for validation, warnings in (("Warn", fields), ("", fields), ("Ignore", [])):
        assert check_object(PODS, sent, validation) == (POD, warnings)
    with pytest.raises(StatusError, match='fieldValidation: Unsupported value: "Loose"'):
        check_object(PODS, sent, "Loose")


@pytest.mark.parametrize(
    ("resource", "obj", "said"),
    [
        (PODS, {"spec": []}, "spec: expected an object, got a list"),
        (PODS, {"spec": {"containers": {}}}, "spec.containers: expected a list, got an object"),
        (PODS, {"spec": {"containers": [1]}}, "spec.containers[0]: expected an object, got a number"),
        (PODS, {"spec": {"nodeName": 1}}, "spec.nodeName: expected a string, got a number"),
        (PODS, {"spec": {"hostNetwork": "yes"}}, "spec.hostNetwork: expected a boolean, got the string 'yes'"),
        (PODS, {"spec": {"priority": True}}, "spec.priority: expected an integer, got a boolean"),
        (PODS, {"spec": {"priority": 2**63}}, "spec.priority: expected an integer, got a number"),
        (PODS, {"spec": {"priority": 1.5}}, "spec.priority: expected an integer, got a number"),
        (PODS, {"metadata": {"labels": {"a": 1}}}, "metadata.labels.a: expected a string, got a number"),
        (CONFIG_MAPS, {"data": ["x"]}, "data: expected an object, got a list"),
        (SERVICES, {"spec": {"ports": [{"targetPort": []}]}}, "spec.ports[0].targetPort: expected a int-or-string"),
        (LEASES, {"spec": {"renewTime": "2026-01-01T00:00:00Z"}}, "a time with microseconds"),
        (LEASES, {"metadata": {"creationTimestamp": "today"}}, "metadata.creationTimestamp: expected a time"),
    ],
)
def test_a_value_of_the_wrong_type_is_named_by_its_path(resource, obj, said):
    with pytest.raises(StatusError, match=f"cannot be handled as a {resource.kind}: ") as refused:
        check_object(resource, obj, "Warn")
    assert refused.value.status == 400
    assert said in str(refused.value)


@pytest.mark.parametrize("quantity", ["1", 1, 1.5, "500m", "2Gi"])
def test_a_quantity_may_be_a_number_or_a_text(quantity):
    container = {"name": "main", "resources": {"limits": {"cpu": quantity}}}
    found, _ = check_object(PODS, {"spec": {"containers": [container]}}, "Strict")
    assert found["spec"]["containers"][0]["resources"]["limits"]["cpu"] == str(quantity)


@pytest.mark.parametrize("quantity", ["", "x", "1Qi", [], None, True])
def test_what_is_no_quantity_is_refused(quantity):
    container = {"name": "main", "resources": {"limits": {"cpu": quantity}}}
    with pytest.raises(StatusError, match="expected a quantity"):
        check_object(PODS, {"spec": {"containers": [container]}}, "Strict")


def test_required_fields_are_required_but_in_a_status():
    with pytest.raises(StatusError, match=r"spec.containers\[0\].name: Required value") as refused:
        check_object(PODS, {"spec": {"containers": [{}]}}, "Warn")
    assert refused.value.status == 422
    status = {"containerStatuses": [{}]}
    assert check_object(PODS, {**POD, "status": status}, "Strict")[0]["status"] == status
