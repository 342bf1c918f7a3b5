"""Resolution of a command's cluster and service."""

import contextlib
import itertools
import json
import signal
import subprocess
import sys

import pytest
from asks import ask
from session_records import new_record
from sigint_tracer import sigint_at
from waits import frozen, wait_until

from pathways_jupyter.actions import cluster, doctor
from pathways_jupyter.base import interrupts
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import LocalClusterError, SessionError
from pathways_jupyter.base.events import SessionState
from pathways_jupyter.base.tones import Tone
from pathways_jupyter.kube import objects
from pathways_jupyter.local import cluster as embedded
from pathways_jupyter.local import control
from pathways_jupyter.service import names
from pathways_jupyter.service.service_jobset import address
from pathways_jupyter.session import protocol, registry

ADDRESS = "team-pathways-head-0-0.team:29001"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path))
    (tmp_path / "config").write_text(json.dumps({"contexts": []}))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))


def session(name="4f2a", *, config=None, **values):
    """Write the record of a session in namespace research, as its supervisor does."""
    asked = protocol.config_to_json(config or ConnectConfig(kubeconfig="/k"))
    about = {"service": ADDRESS, "namespace": "research", "context": "gke", **values}
    record = new_record(id=name, config=asked, **about)
    registry.write(record)
    return record


def place(found):
    return found.kubeconfig, found.context, found.namespace, found.service


def test_the_only_session_on_this_machine_is_meant_where_nothing_is_named():
    assert place(cluster.where({})) == ("", "", "", "")
    session()
    assert place(cluster.where({"follow": True})) == ("/k", "gke", "research", ADDRESS)
    assert place(cluster.where({"service": "other"})) == ("/k", "gke", "research", "other")
    session("91bc")
    assert place(cluster.where({})) == ("", "", "", "")


@pytest.mark.parametrize("given", [{"context": "mine"}, {"namespace": "mine"}, {"kubeconfig": "/other"}])
def test_what_names_a_cluster_means_no_session_of_another_process(given):
    session()
    found = cluster.where(given)
    assert {name: getattr(found, name) for name in given} == given
    assert found.service == ""


def test_a_command_that_makes_something_does_not_go_where_another_process_is():
    session()
    assert place(cluster.where({}, others=False)) == ("", "", "", "")


def test_a_session_without_a_service_is_meant_if_it_is_attached_to_a_job():
    session(service="", pathways_job="lab")
    assert place(cluster.where({})) == ("/k", "gke", "research", "")
    session(service="", pathways_job="")
    assert place(cluster.where({})) == ("", "", "", "")


@pytest.mark.parametrize(
    ("config", "context", "expected"),
    [
        (ConnectConfig(context="named"), "named", "named"),
        (ConnectConfig(), "current-then", "current-then"),
        (ConnectConfig(), "in-cluster", ""),
        (ConnectConfig(cluster="c", project="p", region="r"), "c", ""),
    ],
)
def test_the_context_of_a_session_is_that_of_its_start(config, context, expected):
    assert cluster.of_session(session(config=config, context=context)).context == expected


@pytest.mark.parametrize(
    ("where", "options"),
    [
        (ConnectConfig(), ""),
        (ConnectConfig(local=True, kubeconfig="/k", context="pathways-local"), "--local"),
        (ConnectConfig(context="my gke", namespace="research"), "--context 'my gke'"),
        (ConnectConfig(kubeconfig="/k"), "--kubeconfig /k"),
        (ConnectConfig(cluster="c", project="p", region="r"), "--cluster c --project p --region r"),
    ],
)
def test_a_cluster_is_named_by_the_options_that_lead_to_it(where, options):
    assert cluster.options_of(where) == options


def test_the_settings_of_other_options_and_aliases_name_no_cluster():
    assert cluster.named({"pathways_service": "s", "tpu": "x", "namespace": "", "follow": True}) == {"service": "s"}


@pytest.fixture
def grown(tmp_path):
    """An embedded cluster of one slice, the config of a session with two, and what waits until it has one again."""
    running = embedded.up({"tpuv6e:2x2": 1}, idle_seconds=600, hollow=True)
    config = cluster.resolve({"local": True, "tpu": "tpuv6e:2x2=2"})

    def shrinks():
        wait_until(lambda: running.status()["instances"] == {"tpuv6e:2x2": 1})

    yield config, shrinks
    assert embedded.down()


@pytest.mark.thorough
def test_slices_that_an_interrupted_connect_adds_go_again_wherever_it_is_interrupted(grown):
    config, shrinks = grown
    for line in itertools.count(1):
        ends = contextlib.suppress(KeyboardInterrupt), interrupts.defer_sigint()
        with ends[0], ends[1], sigint_at(line, cluster, embedded, control) as tracer, cluster.Located(config):
            raise KeyboardInterrupt
        shrinks()
        if not tracer.raised:
            break
    assert line > 50


def test_a_proxy_of_a_service_of_the_same_name_in_another_namespace_holds_none_of_its_slices(grown):
    config, shrinks = grown
    flags = ["--virtual_slices=tpuv6e:2x2,tpuv6e:2x2", f"--resource_manager_address={address(names.DEFAULT_SERVICE)}"]
    pod = {"restartPolicy": "Never", "containers": [{"name": "proxy", "image": "x", "args": flags}]}
    job = {"metadata": {"name": "theirs"}, "spec": {"suspend": True, "template": {"spec": pod}}}

    kubeconfig = embedded.find().kubeconfig
    ask(kubeconfig, objects.create, objects.NAMESPACES, {"metadata": {"name": "team"}})
    ask(kubeconfig, objects.create, objects.JOBS, job, namespace="team")
    with contextlib.suppress(KeyboardInterrupt), cluster.Located(config):
        raise KeyboardInterrupt
    shrinks()


def test_a_resume_with_more_hosts_than_this_machine_runs_well_is_refused_unless_the_user_has_said_yes():
    running = embedded.up({"tpuv6e:2x2": 1}, idle_seconds=600)
    try:
        larger = cluster.resolve({"local": True, "tpu": "tpuv6e:2x2=99"})
        with pytest.raises(LocalClusterError, match=r"would have \d+ hosts, and this machine runs about") as caught:
            cluster.revive(larger, SessionState.SUSPENDED)
        assert caught.value.hint == "Ask for fewer slices, or add --yes."
        assert running.status()["instances"] == {"tpuv6e:2x2": 1}
    finally:
        assert embedded.down()


def test_an_interrupt_does_not_wait_for_a_cluster_that_does_not_answer(grown):
    _, shrinks = grown
    running = embedded.find()
    program = "from pathways_jupyter.local import cluster; cluster.ensure({'tpuv6e:2x2': 2})"
    with frozen(running.pid):
        stuck = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True)
        try:
            # Held while the cluster is asked to grow.
            wait_until(running.directory.with_suffix(".lock").exists)
            stuck.send_signal(signal.SIGINT)
            assert "KeyboardInterrupt" in stuck.communicate(timeout=60)[1]
        finally:
            stuck.kill()
    shrinks()


@pytest.mark.thorough
def test_each_command_says_for_whom_it_waits_and_what_to_do_about_a_cluster_that_is_stopped(grown, monkeypatch):
    running = embedded.find()
    commands = (["slices", "--local"], ["doctor", "--local"], ["local", "status"], ["local", "up"])
    with contextlib.ExitStack() as started:
        with frozen(running.pid):
            waiting = [
                started.enter_context(
                    subprocess.Popen(
                        [sys.executable, "-m", "pathways_jupyter", *each],
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.PIPE,
                        text=True,
                    )
                )
                for each in commands
            ]
            api, *others = [each.stderr.readline() for each in waiting]
            assert (
                api == f"Waiting for an answer of the API server {running.url}, or of what makes credentials for it …\n"
            )
            assert others == [api, *["Waiting for an answer of the embedded cluster 'local' …\n"] * 2]
            monkeypatch.setattr("pathways_jupyter.kube.client.ANSWER_SECONDS", 0.5)
            found = doctor.examine(cluster.where({"local": True}))
            (silent,) = [each for each in found if each.level is Tone.FAIL]
            assert f"kill -CONT {running.pid} continues it" in silent.hint
        # Once for each command, and what it waited for comes.
        assert [each.communicate(timeout=60)[1] for each in waiting] == [""] * 4


def test_a_session_is_found_by_the_beginning_of_its_id():
    with pytest.raises(SessionError, match="There is no session on this machine"):
        cluster.find_session()
    session("4f2a")
    assert cluster.find_session().id == cluster.find_session("4f").id == "4f2a"
    session("4e11")
    for beginning, said in (("", "There are 2 sessions"), ("4", "'4' matches 2 sessions"), ("9", "no session '9'")):
        with pytest.raises(SessionError, match=said):
            cluster.find_session(beginning)
