"""Label and field selectors, in the text form of requests and in the form that objects carry."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pathways_jupyter.local.apiserver.api_errors import StatusError
from pathways_jupyter.local.apiserver.resources import PODS
from pathways_jupyter.local.apiserver.selectors import field_test, label_test, matches_selector

LABELS = {"app": "web", "tier": "back"}


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("app=web", True),
        ("app==web,tier!=front", True),
        ("app in (web, api),!canary", True),
        ("app in (api)", False),
        ("app notin (web)", False),
        ("app notin (api)", True),
        # A label that an object does not have is not among the values.
        ("canary notin (yes)", True),
        ("canary!=yes", True),
        ("canary in (yes)", False),
        ("canary=yes", False),
        ("canary", False),
        ("!app", False),
    ],
)
def test_a_label_selector_selects(text: str, fits: bool) -> None:
    assert label_test(text)({"metadata": {"labels": LABELS}}) is fits
    if fits and ("!" in text or "notin" in text) and "app" not in text:
        assert label_test(text)({"metadata": {}})


@pytest.mark.parametrize(
    ("key", "operator", "values", "fits"),
    [
        ("app", "In", ["web"], True),
        ("app", "In", ["api"], False),
        ("canary", "In", ["yes"], False),
        ("app", "NotIn", ["web"], False),
        ("app", "NotIn", ["api"], True),
        ("canary", "NotIn", ["yes"], True),
        ("app", "Exists", None, True),
        ("canary", "Exists", None, False),
        ("app", "DoesNotExist", None, False),
        ("canary", "DoesNotExist", None, True),
        ("app", "Gt", ["1"], False),
    ],
)
def test_an_expression_selects(key: str, operator: str, values: list[str] | None, fits: bool) -> None:
    expression = {"key": key, "operator": operator, **({"values": values} if values is not None else {})}

    assert matches_selector({"matchExpressions": [expression]}, LABELS) is fits
    assert matches_selector({"matchLabels": {"app": "api"}, "matchExpressions": [expression]}, LABELS) is False


@pytest.mark.parametrize("text", ["app in web", "app=web,", "=web", "app=we b", "app in (w/b)", "a,,b", "a=b=c", "("])
def test_a_label_selector_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(StatusError) as refused:
        label_test(text)
    assert refused.value.status == 400


def test_a_field_selector_selects_by_the_fields_that_its_kind_has() -> None:
    pod = {"metadata": {"name": "p"}, "spec": {"nodeName": "m"}, "status": {"phase": "Running"}}

    assert field_test("status.phase=Running,metadata.name!=q,spec.nodeName==m", PODS)(pod)
    assert not field_test("spec.nodeName=n", PODS)(pod)
    for text in ("spec.image=x", "metadata.name"):
        with pytest.raises(StatusError):
            field_test(text, PODS)


@settings(max_examples=60)
@given(st.text(alphabet="ab=!,() inot", max_size=24), st.dictionaries(st.sampled_from("ab"), st.sampled_from("ab")))
def test_a_selector_is_either_understood_or_refused(text: str, labels) -> None:
    with contextlib.suppress(StatusError):
        assert label_test(text)({"metadata": {"labels": labels}}) in (True, False)


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz"), min_size=1))
def test_a_selector_made_of_an_objects_labels_selects_it(labels) -> None:
    text = ",".join(f"{key}={value}" for key, value in labels.items())

    assert label_test(text)({"metadata": {"labels": labels}})
    assert not label_test(text)({"metadata": {}})
    assert label_test(",".join(f"{key}!=other" for key in labels))({"metadata": {"labels": labels}})
