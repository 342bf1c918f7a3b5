"""Resolution of a page's words to a cluster; what is set up decides, and the page cannot."""

import dataclasses
import json
import os

import pytest
from kubeconfigs import write
from session_records import bare_record

from pathways_jupyter.base.errors import ConfigError, LocalClusterError, SessionError
from pathways_jupyter.kernel.places import KernelPlace, PlaceFile
from pathways_jupyter.kube import auth
from pathways_jupyter.server import scope as scopes
from pathways_jupyter.server.scope import Scope
from pathways_jupyter.server.server_state import contexts

ADDRESS = "https://127.0.0.1:1"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Nothing is set up."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "JUPYTER_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    return tmp_path


def kubeconfig(path, name):
    path.parent.mkdir(exist_ok=True)
    return write(path, {"server": ADDRESS}, {"token": "t"}, name=name)


def record(**changes):
    return bare_record(**{"id": "abc", "namespace": "ns", "context": "ctx", **changes})


async def test_where_nothing_is_set_up_and_nothing_runs_there_is_no_cluster():
    with pytest.raises(ConfigError, match="no kubeconfig"):
        await scopes.resolve(Scope())
    with pytest.raises(LocalClusterError, match="is not running"):
        await scopes.resolve(Scope(local=True))


async def test_the_kubeconfigs_context_is_named(home):
    kubeconfig(home / ".kube" / "config", "mine")
    place = await scopes.resolve(Scope(namespace="other"))
    assert place.scope == Scope(context="mine", namespace="other")
    assert (place.cluster.server, place.cluster.namespace) == (ADDRESS, "other")


async def test_without_a_namespace_it_is_the_one_that_connect_takes(home, monkeypatch):
    kubeconfig(home / ".kube" / "config", "mine")
    monkeypatch.setenv("PATHWAYS_JUPYTER_NAMESPACE", "tpus")
    assert (await scopes.resolve(Scope())).cluster.namespace == "tpus"
    assert (await scopes.resolve(Scope(namespace="other"))).cluster.namespace == "other"
    monkeypatch.delenv("PATHWAYS_JUPYTER_NAMESPACE")
    before = scopes.fingerprint()
    profiles = home / ".jupyter" / "pathways.toml"
    profiles.parent.mkdir()
    profiles.write_text('[profiles.default]\nnamespace = "research"\n')
    assert scopes.fingerprint() != before
    assert (await scopes.resolve(Scope())).cluster.namespace == "research"


def test_a_page_may_name_a_session_where_the_profiles_cannot_be_read(home):
    profiles = home / ".jupyter" / "pathways.toml"
    profiles.parent.mkdir()
    profiles.write_text("[profiles.team\n")
    assert scopes.parse({"session": "abc", "namespace": "tpus"}) == Scope(session="abc", namespace="tpus")
    with pytest.raises(ConfigError, match="'No Name' is not a Kubernetes namespace"):
        scopes.parse({"namespace": "No Name"})


async def test_a_kubeconfig_that_the_environment_names_and_that_is_not_there_is_an_error(home, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(home / "typo"))
    with pytest.raises(ConfigError, match=r"typo, set by KUBECONFIG, does not exist"):
        await scopes.resolve(Scope())


async def test_a_kubeconfig_without_a_current_context_is_an_error(home):
    path = home / ".kube" / "config"
    kubeconfig(path, "mine")
    path.write_text(json.dumps({**json.loads(path.read_text()), "current-context": ""}))
    with pytest.raises(ConfigError, match="current context"):
        await scopes.resolve(Scope())
    assert (await scopes.resolve(Scope(context="mine"))).cluster.server == ADDRESS


@pytest.mark.parametrize(
    ("changes", "scope"),
    [
        ({}, Scope(context="ctx", namespace="ns")),
        ({"context": "in-cluster"}, Scope(namespace="ns")),
        ({"config": {"local": True, "kubeconfig": "/x"}}, Scope(namespace="ns", local=True)),
        ({"config": {"kubeconfig": "/x"}}, Scope(namespace="ns", session="abc")),
        ({"config": {"cluster": "c", "project": "p", "region": "r"}}, Scope(namespace="ns", session="abc")),
        ({"kubeconfigs": "/another"}, Scope(namespace="ns", session="abc")),
    ],
)
def test_a_session_is_where_its_context_says_or_where_only_its_record_says(changes, scope):
    assert scopes.of_record(record(**changes)) == scope


@pytest.mark.parametrize(("value", "local"), [("true", True), ("false", False), (True, True), (False, False)])
def test_a_flag_in_a_query_means_what_it_says(value, local):
    assert scopes.parse({"local": value}) == Scope(local=local)


async def test_a_kernel_names_the_cluster_of_its_kubeconfig_as_long_as_it_is_there(home):
    where = {"kubeconfig": str(kubeconfig(home / "far" / "config", "far")), "namespace": "team"}
    file = PlaceFile(KernelPlace("k1", "lab", where=where))
    scope = scopes.of_kernel(file.place)
    assert scopes.parse(dataclasses.asdict(scope)) == scope == Scope(kernel="k1", namespace="team")
    found = (await scopes.resolve(scope)).cluster
    assert (found.server, found.namespace) == (ADDRESS, "team")
    file.close()
    with pytest.raises(SessionError, match="no such kernel"):
        await scopes.resolve(scope)
    with pytest.raises(ConfigError, match="is not the id of a kernel"):
        scopes.parse({"kernel": "../x"})


def test_what_a_page_gets_is_what_it_may_send():
    scope = scopes.of_record(record(config={"kubeconfig": "/x"}))
    assert scopes.parse(dataclasses.asdict(scope)) == scope
    assert {field.name for field in dataclasses.fields(Scope)} == {"context", "namespace", "session", "kernel", "local"}


async def test_the_dialog_offers_the_cluster_around_the_servers_pod_unless_a_kubeconfig_names_others(home, monkeypatch):
    around = auth.load(str(kubeconfig(home / "elsewhere" / "config", "x")))
    assert contexts()["in_cluster"] is False
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert contexts()["in_cluster"] is False, "the pod has no service account"
    monkeypatch.setattr(auth, "in_cluster", lambda environ: dataclasses.replace(around, name="in-cluster"))
    assert contexts()["in_cluster"] is True
    # As a page gets it, and as the lines that it writes name it: by nothing.
    assert (await scopes.resolve(Scope())).scope == Scope()
    kubeconfig(home / ".kube" / "config", "mine")
    assert contexts()["in_cluster"] is False


def test_a_kubeconfig_that_was_written_is_noticed(home):
    before = scopes.fingerprint()
    assert scopes.fingerprint() == before
    path = home / ".kube" / "config"
    kubeconfig(path, "mine")
    between = scopes.fingerprint()
    assert between != before
    os.utime(path, ns=(1, 1))
    assert scopes.fingerprint() != between
