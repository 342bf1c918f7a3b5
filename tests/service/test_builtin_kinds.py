from decimal import Decimal

import pytest

from pathways_jupyter.service import builtin_kinds


@pytest.mark.parametrize(
    ("quantity", "amount"),
    [
        ("100m", "0.1"), ("0.5", "0.5"), (".5", "0.5"), ("2.", "2"), (3, "3"), ("-1", "-1"), ("+1", "1"),
        ("16k", "16000"),
        ("100G", "1e11"), ("1Gi", str(2**30)), ("2Ei", str(2**61)), ("1E", "1e18"), ("1e9", "1e9"), ("5E3", "5000"),
        ("7n", "7e-9"), ("7u", "7e-6"),
        # As Kubernetes has it: no number is larger than 2**63 - 1.
        ("1e30", str(2**63 - 1)), ("-1e30", str(1 - 2**63)), ("9e999999999", str(2**63 - 1)),
    ],
)  # fmt: skip
def test_a_quantity_is_a_number(quantity, amount):
    assert builtin_kinds.amount(quantity) == Decimal(amount)


@pytest.mark.parametrize("text", ["", "100GB", "16gb", "1 G", "G", "1.2.3", "1K", "0x10", "१", "inf", "1e", None])
def test_other_texts_are_none(text):
    with pytest.raises(ValueError, match="is not a quantity"):
        builtin_kinds.amount(text)


def test_a_schema_is_that_of_the_kind():
    template = builtin_kinds.schema("PodTemplateSpec")["properties"]
    container = template["spec"]["properties"]["containers"]["items"]
    assert container["required"] == ["name"]
    assert container["properties"]["command"] == {"type": "array", "items": {"type": "string"}}
    port = container["properties"]["livenessProbe"]["properties"]["httpGet"]["properties"]["port"]
    assert port == {"x-kubernetes-int-or-string": True}
    assert set(template["metadata"]["properties"]) == {"annotations", "finalizers", "labels", "name", "namespace"}
