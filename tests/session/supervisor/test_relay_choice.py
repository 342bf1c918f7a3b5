"""Sessions with a relay beside their proxy, and without."""

from __future__ import annotations

import pytest
from asks import ask

from pathways_jupyter.base.events import EventKind
from pathways_jupyter.kube.objects import PODS, Object, list_
from pathways_jupyter.service.names import SESSION_LABEL
from pathways_jupyter.session.kernel import session
from pathways_jupyter.tunnel.relay import relay_container

NO_IMAGE = "sidecar:none"


def pods(cluster, name: str) -> list[Object]:
    return ask(cluster.kubeconfig, list_, PODS, namespace="default", labels=f"{SESSION_LABEL}={name}").items


def relays(cluster, name: str) -> list[str]:
    """The images of the relays beside a session's proxy."""
    every = [each for pod in pods(cluster, name) for each in pod["spec"].get("initContainers") or ()]
    return [each["image"] for each in every if each["name"] == relay_container.NAME]


@pytest.fixture
def foreign(cluster, tmp_path) -> str:
    """A kubeconfig from which nothing shows that it is the embedded cluster's."""
    path = tmp_path / "kubeconfig"
    path.write_text(f"{cluster.kubeconfig.read_text()}\n# Not a copy of that.\n")
    return str(path)


@pytest.mark.parametrize(("relay", "has"), [(None, True), (False, False)], ids=["default", "no-relay"])
def test_a_tunnel_through_an_api_server_has_a_relay_unless_it_is_turned_off(cluster, config, foreign, relay, has):
    with session.connect(config(1, kubeconfig=foreign, relay=relay)) as made:
        assert relays(cluster, made.id) == [relay_container.DEFAULT_IMAGE] * has


@pytest.mark.thorough
@pytest.mark.parametrize(("relay", "has"), [(None, False), (True, True)], ids=["default", "relay"])
def test_the_embedded_cluster_has_a_relay_only_where_it_is_asked_for(cluster, config, relay, has):
    with session.connect(config(1, relay=relay)) as made:
        assert len(relays(cluster, made.id)) == has


@pytest.mark.thorough
def test_a_session_whose_relay_cannot_start_goes_on_without_it_and_says_so_once(cluster, config, foreign, gone):
    with session.connect(config(1, kubeconfig=foreign, relay_image=NO_IMAGE)) as made:
        (pod,) = pods(cluster, made.id)
        assert "initContainers" not in pod["spec"]
        assert "livenessProbe" not in pod["spec"]["containers"][0]
        made.reconnect()
        assert not relays(cluster, made.id)
        (warning,) = (event for event in made.events() if event.kind is EventKind.WARNING)
        assert warning.message.startswith("The relay cannot start: its image cannot be pulled (sidecar:none):")
        assert "Continuing without it" in warning.message
    gone(made.id)
