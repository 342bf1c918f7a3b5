"""The environment by which another process uses a session's proxy."""

from __future__ import annotations

import os

import pytest
from session_records import bare_record

from pathways_jupyter.session.registry import ALTS, SessionRecord
from pathways_jupyter.session.variables import INSECURE_CREDENTIALS, PLATFORMS, TARGET, ChildEnvironment, variables

NAMES = (PLATFORMS, TARGET, INSECURE_CREDENTIALS)


def record(session: str = "s1", **about: str) -> SessionRecord:
    return bare_record(id=session, tunnel=f"/run/{session}.tunnel", **about)


def test_a_direct_connection_with_alts_allows_no_plaintext():
    assert variables(record(), environ={}) == {
        PLATFORMS: "proxy",
        TARGET: "grpc://unix:/run/s1.tunnel",
        INSECURE_CREDENTIALS: "true",
    }
    assert variables(record(direct="10.4.0.7:29100", credentials=ALTS), environ={}) == {
        PLATFORMS: "proxy",
        TARGET: "grpc://10.4.0.7:29100",
    }


@pytest.mark.parametrize(("found", "platforms"), [("proxy,cpu", "proxy,cpu"), ("cpu", "proxy"), ("proxyless", "proxy")])
def test_platforms_that_begin_with_the_proxy_are_kept(found, platforms):
    assert variables(record(), environ={PLATFORMS: found})[PLATFORMS] == platforms


def test_what_is_shared_follows_the_session_and_is_restored(monkeypatch):
    monkeypatch.setenv(PLATFORMS, "cpu")
    for name in (TARGET, INSECURE_CREDENTIALS):
        monkeypatch.delenv(name, raising=False)
    before = {name: os.environ.get(name) for name in NAMES}
    children = ChildEnvironment()
    children.follow(record())
    assert {name: os.environ.get(name) for name in NAMES} == before
    assert children.share(record()) == {name: os.environ[name] for name in NAMES}
    children.follow(record("s2"))
    assert os.environ[TARGET] == "grpc://unix:/run/s2.tunnel"
    children.restore()
    assert {name: os.environ.get(name) for name in NAMES} == before
