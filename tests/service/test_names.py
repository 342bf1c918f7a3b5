import os
import re
import subprocess
import sys

import pytest

from pathways_jupyter.service import names

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
    # Each would be cut behind a character that no label or name may end with.
    "a" * 62 + "-b",
    "a" * 62 + ".b",
    "a" * 62 + "__b",
    *("a" * count + "-b" * 60 for count in range(1, 40, 7)),
    *("a" * count + "-b" * 60 for count in range(2, 40, 7)),
]


@pytest.mark.parametrize("person", PEOPLE)
def test_whatever_people_are_called_becomes_a_label(person):
    label = names.label_value(person)
    assert len(label) <= 63
    assert LABEL.fullmatch(label)


def test_a_label_keeps_what_it_can():
    assert names.label_value("Jane.Doe@example.com") == "Jane.Doe-example.com"
    assert names.label_value("räk") == "rak"


@pytest.mark.parametrize("person", PEOPLE)
@pytest.mark.parametrize("session", ["a1b2c3d4", "A_B", "0" * 64, "a-" * 40])
def test_whatever_people_are_called_a_job_and_its_pod_get_names(person, session):
    name = names.job_name(person, session)
    assert len(name) <= names.MAX_JOB_NAME
    assert NAME.fullmatch(name)
    assert len(f"{name}-abcde") <= 63


def test_sessions_of_one_user_get_different_names():
    assert names.job_name("jane" * 50, "aaaa1111") != names.job_name("jane" * 50, "aaaa2222")


def test_a_name_contains_the_user():
    assert names.job_name("jane.doe@example.com", "a1b2c3d4") == "pathways-proxy-jane-doe-a1b2c3d4"


AS_A_NUMBER = """
import os

from pathways_jupyter.service.names import current_user, label_value

if os.getuid() == 0:
    os.setuid(12345)
print(os.getuid(), current_user(), label_value(current_user()))
"""


def test_a_user_without_a_name_goes_by_the_number():
    """As in a hub's pod with a random uid; only root can switch to one."""
    named = {"LOGNAME", "USER", "LNAME", "USERNAME", "JUPYTERHUB_USER"}
    unnamed = {name: value for name, value in os.environ.items() if name not in named}
    done = subprocess.run([sys.executable, "-c", AS_A_NUMBER], env=unnamed, capture_output=True, text=True, check=True)
    uid, user, label = done.stdout.split()
    assert label == names.label_value(user)
    if os.getuid() == 0:
        assert (uid, user, label) == ("12345", "12345", "12345")


def test_a_user_of_a_hub_goes_by_the_hubs_name_except_on_hosts(monkeypatch):
    monkeypatch.setenv("USER", "jovyan")
    monkeypatch.delenv("LOGNAME", raising=False)
    monkeypatch.setenv("JUPYTERHUB_USER", "jane@example.com")
    assert (names.current_user(), names.login_name()) == ("jane@example.com", "jovyan")
