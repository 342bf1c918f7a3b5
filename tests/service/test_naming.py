import re

import pytest

from pathways_jupyter.service import naming

LABEL = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
PEOPLE = [
    "jane",
    "Jane.Doe@example.com",
    "räksmörgås",
    "名前",
    "",
    "--x--",
    "a" * 200,
    "x/y:z",
    "_under_",
    "1.",
    "é" * 99,
]


@pytest.mark.parametrize("person", PEOPLE)
def test_whatever_people_are_called_becomes_a_label(person):
    label = naming.label_value(person)
    assert len(label) <= 63
    assert LABEL.fullmatch(label)


def test_a_label_keeps_what_it_can():
    assert naming.label_value("Jane.Doe@example.com") == "Jane.Doe-example.com"
    assert naming.label_value("räk") == "rak"


@pytest.mark.parametrize("person", PEOPLE)
@pytest.mark.parametrize("session", ["a1b2c3d4", "A_B", "0" * 64])
def test_whatever_people_are_called_a_job_and_its_pod_get_names(person, session):
    name = naming.job_name(person, session)
    assert len(name) <= naming.MAX_JOB_NAME
    assert NAME.fullmatch(name)
    assert len(f"{name}-abcde") <= 63


def test_sessions_of_one_user_get_different_names():
    assert naming.job_name("jane" * 50, "aaaa1111") != naming.job_name("jane" * 50, "aaaa2222")


def test_a_name_tells_whose_it_is():
    assert naming.job_name("jane.doe@example.com", "a1b2c3d4") == "pathways-proxy-jane-doe-a1b2c3d4"
