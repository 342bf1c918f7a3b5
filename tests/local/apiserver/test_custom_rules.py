"""Rules of custom resources in Python, held against CEL."""

from __future__ import annotations

import pytest
from cel_expr_python import cel
from hypothesis import given, settings
from hypothesis import strategies as st

from pathways_jupyter.local.apiserver import custom_rules
from pathways_jupyter.service.pathwaysjob import definition

ENVIRONMENT = cel.NewEnv(variables={"self": cel.Type.DYN, "oldSelf": cel.Type.DYN})
TEXTS = st.sampled_from(
    [
        *("", "main", "pathways-rm", "pathways-proxy", "a", "1st", "a-", "a" * 40, "a" * 41, "a\n"),
        *("2x2", "2x2x1", "4x4x4", "4x4x4\n", "12x4x100", "3x3", "4x6x4", "16x16", "8x8x9"),
    ]
)
SCHEMA = definition.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def values(schema) -> st.SearchStrategy:
    """Values that fit a schema, without its patterns and rules."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "type" not in schema:
        return st.one_of(TEXTS, st.integers(0, 3))
    if schema["type"] == "object":
        # Defaults are filled in before rules are evaluated.
        properties = schema.get("properties", {})
        filled = [key for key, each in properties.items() if "default" in each]
        required = {*schema.get("required", ()), *filled}
        # Of a pod and a container only these: no rule reads the many others.
        named = required if len(properties) > 20 else properties.keys() - {"metadata"}
        known = {key: values(each) for key, each in properties.items() if key in named}
        return st.fixed_dictionaries(
            {key: each for key, each in known.items() if key in required},
            optional={key: each for key, each in known.items() if key not in required},
        )
    if schema["type"] == "array":
        return st.lists(values(schema["items"]), min_size=schema.get("minItems", 0), max_size=2)
    plain = {"string": TEXTS, "integer": st.integers(0, 3), "boolean": st.booleans()}
    return plain[schema["type"]]


def ruled(schema, path=""):
    """Yield every rule of a schema, with the schema that it is about."""
    for index, rule in enumerate(schema.get("x-kubernetes-validations", ())):
        yield pytest.param(rule["rule"], schema, id=f"{path or 'root'}-{index}")
    for key, child in schema.get("properties", {}).items():
        yield from ruled(child, f"{path}.{key}")
    if "items" in schema:
        yield from ruled(schema["items"], f"{path}[]")


@pytest.mark.parametrize(("rule", "schema"), list(ruled(SCHEMA)))
def test_a_rule_means_the_same_as_in_cel(rule: str, schema) -> None:
    compiled, holds = ENVIRONMENT.compile(rule), custom_rules.evaluator(rule)
    assert holds is not None
    fitting = values(schema)
    if schema is SCHEMA:
        fitting = st.fixed_dictionaries({"metadata": st.fixed_dictionaries({"name": TEXTS})})

    @settings(max_examples=60, database=None)
    @given(fitting, fitting, st.booleans())
    def compare(new, old, same) -> None:
        old = new if same else old
        assert holds(new, old) is compiled.eval(data={"self": new, "oldSelf": old}).value()

    compare()


@pytest.mark.parametrize(
    ("new", "old", "same"),
    [(1, True, False), ({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}, True), ({"a": 0}, {"a": False}, False)],
)
def test_a_number_is_not_a_boolean(new, old, same: bool) -> None:
    rule = "self == oldSelf"
    assert custom_rules.evaluator(rule)(new, old) is same
    assert ENVIRONMENT.compile(rule).eval(data={"self": new, "oldSelf": old}).value() is same


def test_a_rule_about_a_field_that_is_missing_refuses_the_object() -> None:
    schema = {"x-kubernetes-validations": [{"rule": "!(self.name in ['a'])", "fieldPath": ".name"}]}

    assert list(custom_rules.rule_causes(schema, {"metadata": {}})) == [
        ("name", "Invalid value: \"object\": rule evaluation error: 'name'")
    ]


async def test_rules_that_are_not_evaluated_give_a_warning(bench) -> None:
    made = definition.definition()
    made["metadata"]["name"] = "things.example.org"
    made["spec"] |= {"group": "example.org", "names": {"kind": "Thing", "plural": "things"}}
    schema = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]

    async def warnings(method: str, path: str) -> list[str]:
        async with bench.request(method, path, json=made) as response:
            assert response.status in (200, 201), await response.text()
            made["metadata"] = (await response.json())["metadata"]
            return response.headers.getall("Warning", [])

    assert await warnings("POST", DEFINITIONS) == []
    schema["properties"]["spec"]["x-kubernetes-validations"].append({"rule": "self.size() > 3"})
    (warning,) = await warnings("PUT", f"{DEFINITIONS}/things.example.org")
    assert "the embedded cluster does not evaluate 1 of its rules: self.size() > 3" in warning
