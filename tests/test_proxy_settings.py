"""Settings of a proxy's pod: in calls, profiles and the environment; wrong values change nothing."""

import pytest

from pathways_jupyter.base import setting_sources
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.service import proxy_job
from pathways_jupyter.session import protocol

GIVEN = {
    "proxy_options": ["--xla_one=1", "--xla_two"],
    "proxy_cpu": "8",
    "proxy_memory": "32G",
    "proxy_node_selector": {"cloud.google.com/gke-nodepool": "cpu-np"},
    "proxy_tolerations": ["dedicated=research:NoSchedule", "spot", "old:NoExecute"],
    "proxy_priority_class": "high",
    "proxy_service_account": "pathways",
    "proxy_labels": {"team": "research"},
    "proxy_env": {"TF_CPP_MIN_LOG_LEVEL": "0", "EMPTY": ""},
}


def pod_of(checked: ConnectConfig) -> tuple[dict, dict]:
    """The Job and its pod's spec, as the supervisor makes them."""
    spec = proxy_job.ProxySpec(
        session="s1",
        service="x",
        address="x:1",
        image="r/proxy_server:1",
        instances={"tpuv6e:2x2": 1},
        options=proxy_job.ProxyOptions(flags=checked.proxy_options),
        settings=checked,
    )
    job = proxy_job.job(spec)
    return job, job["spec"]["template"]["spec"]


def test_everything_that_is_said_is_in_the_pod():
    checked = protocol.config_from_json(protocol.config_to_json(setting_sources.resolve(GIVEN, environ={})))
    job, pod = pod_of(checked)
    (container,) = pod["containers"]
    assert container["args"][-2:] == ["--xla_one=1", "--xla_two"]
    assert container["resources"] == {"limits": {"cpu": "8", "memory": "32G"}}
    assert container["env"][1:] == [{"name": "TF_CPP_MIN_LOG_LEVEL", "value": "0"}, {"name": "EMPTY", "value": ""}]
    assert pod["nodeSelector"] == {"cloud.google.com/gke-nodepool": "cpu-np"}
    assert pod["tolerations"] == [
        {"key": "dedicated", "operator": "Equal", "value": "research", "effect": "NoSchedule"},
        {"key": "spot", "operator": "Exists"},
        {"key": "old", "operator": "Exists", "effect": "NoExecute"},
    ]
    assert (pod["priorityClassName"], pod["serviceAccountName"]) == ("high", "pathways")
    assert job["metadata"]["labels"]["team"] == job["spec"]["template"]["metadata"]["labels"]["team"] == "research"


def test_nothing_said_leaves_the_pod_as_it_was():
    _, pod = pod_of(setting_sources.resolve({}, environ={}))
    assert not {"nodeSelector", "tolerations", "priorityClassName", "serviceAccountName"} & set(pod)
    assert pod["containers"][0]["resources"] == {"limits": {"cpu": "16", "memory": "100G"}}


def test_a_profile_and_the_environment_say_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path))
    (tmp_path / "pathways.toml").write_text(
        "[profiles.team]\n"
        "proxy_cpu = 8\n"
        'proxy_memory = "32G"\n'
        'proxy_labels = { team = "research" }\n'
        'proxy_tolerations = ["dedicated=research:NoSchedule"]\n'
        "at_least = 1\n"
    )
    read = setting_sources.resolve({"profile": "team"}, environ={"PATHWAYS_JUPYTER_PROXY_ENV": "A=1 B=2"})
    assert (read.proxy_cpu, read.proxy_memory, read.proxy_labels) == ("8", "32G", ("team=research",))
    assert (read.proxy_tolerations, read.proxy_env) == (("dedicated=research:NoSchedule",), ("A=1", "B=2"))
    assert read.at_least == 1


@pytest.mark.parametrize(
    ("setting", "value", "problem"),
    [
        ("proxy_cpu", "lots", "not a quantity"),
        ("proxy_cpu", "0", "not a quantity"),
        ("proxy_memory", "32 G", "not a quantity"),
        ("proxy_node_selector", ["pool"], "not KEY=VALUE"),
        ("proxy_node_selector", ["pool=a b"], "cannot be the value of a label"),
        ("proxy_tolerations", ["key=value:Never"], "NoSchedule"),
        ("proxy_priority_class", "High", "lower-case"),
        ("proxy_service_account", "a/b", "lower-case"),
        ("proxy_labels", {"pathways-jupyter/session": "x"}, "sets that itself"),
        ("proxy_labels", ["-x=1"], "cannot be the key of a label"),
        ("proxy_env", ["1A=1"], "cannot be the name of a variable"),
        ("proxy_env", {"IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS": "false"}, "sets that itself"),
        ("proxy_env", 3, "not a list of strings"),
        ("at_least", "0", "at least 1"),
    ],
)
def test_a_wrong_value_is_refused_with_its_reason(setting, value, problem):
    with pytest.raises(ConfigError, match=problem) as raised:
        setting_sources.resolve({setting: value}, environ={})
    assert raised.value.hint


def test_more_at_least_than_in_all_is_refused():
    with pytest.raises(ConfigError, match="only 2 in all"):
        setting_sources.resolve({"tpu": "tpuv6e:2x2=2", "at_least": 3}, environ={})
