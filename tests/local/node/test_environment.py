from __future__ import annotations

import base64

import pytest

from pathways_jupyter.local.apiserver.resources import CONFIG_MAPS, SECRETS
from pathways_jupyter.local.apiserver.store import Store
from pathways_jupyter.local.node.environment import SpecError, container_environment, expand

POD = {
    "metadata": {"name": "p", "namespace": "default", "uid": "u", "labels": {"a/b": "label"}},
    "spec": {"nodeName": "n"},
    "status": {"podIP": "127.9.0.1", "podIPs": [{"ip": "127.9.0.1"}]},
}


@pytest.fixture
def store():
    store = Store()
    store.create(CONFIG_MAPS, {"metadata": {"name": "settings"}, "data": {"COLOUR": "red"}}, namespace="default")
    secret = base64.b64encode(b"hush").decode()
    store.create(SECRETS, {"metadata": {"name": "hidden"}, "data": {"word": secret}}, namespace="default")
    return store


def environment(store, *variables, **more):
    return container_environment({"env": list(variables), **more}, POD, base={"BASE": "x"}, store=store)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("$(A)-$(B)", "1-$(B)"), ("$$(A)", "$(A)"), ("$A $", "$A $"), ("$(A", "$(A"), ("$$$(A)", "$1")],
)
def test_references_are_replaced_as_kubernetes_does(text, expected):
    assert expand(text, {"A": "1"}) == expected


def test_variables_come_from_values_fields_and_objects(store):
    made = environment(
        store,
        {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a/b']"}}},
        {"name": "NONE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['none']"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "hidden", "key": "word"}}},
        {"name": "MAYBE", "valueFrom": {"secretKeyRef": {"name": "none", "key": "word", "optional": True}}},
        {"name": "ALL", "value": "$(BASE) $(LABEL) $(COLOUR) $(LATER)"},
        {"name": "LATER", "value": "z"},
        envFrom=[{"configMapRef": {"name": "settings"}}],
    )
    assert made["ALL"] == "x label red $(LATER)"
    assert made["NONE"] == ""
    assert made["IP"] == "127.9.0.1"
    assert made["WORD"] == "hush"
    assert "MAYBE" not in made


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"configMapKeyRef": {"name": "none", "key": "x"}}, 'configmap "none" not found'),
        ({"configMapKeyRef": {"name": "settings", "key": "x"}}, "couldn't find key x in ConfigMap settings"),
        ({"fieldRef": {"fieldPath": "spec.containers"}}, "not supported"),
    ],
)
def test_what_does_not_exist_is_named(store, source, message):
    with pytest.raises(SpecError, match=message):
        environment(store, {"name": "X", "valueFrom": source})
