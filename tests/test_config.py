"""Settings: where each comes from, and what is refused."""

import math

import pytest

from pathways_jupyter import config
from pathways_jupyter.errors import ConfigError


@pytest.fixture(autouse=True)
def profiles_file(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path))
    return tmp_path / "pathways.toml"


def test_an_argument_beats_the_environment_which_beats_the_profile(profiles_file):
    profiles_file.write_text('[profiles.team]\nnamespace = "research"\ncontext = "tpus"\nwait = 5\n')
    environ = {"PATHWAYS_JUPYTER_NAMESPACE": "staging", "PATHWAYS_JUPYTER_WAIT": "inf"}
    found = config.resolve({"profile": "team", "namespace": "mine", "context": None}, environ=environ)
    assert (found.namespace, found.wait, found.context) == ("mine", math.inf, "tpus")


def test_the_default_profile_is_used_when_none_is_named(profiles_file):
    profiles_file.write_text('[profiles.default]\ntpu = "tpuv6e:2x2=2"\n')
    assert config.resolve({}, environ={}).instances == {"tpuv6e:2x2": 2}


def test_instances_replace_a_profiles_tpu(profiles_file):
    profiles_file.write_text('[profiles.default]\ntpu = "tpuv6e:2x2=2"\n')
    assert config.resolve({"instances": {"tpuv5e:4x4": 1}}, environ={}).instances == {"tpuv5e:4x4": 1}


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"tpu": "tpuv6e:9x9"}, "topology"),
        ({"pathways_service": "head:port"}, "service address"),
        ({"pathways_service": "a:b:1"}, "service address"),
        ({"pathways_service": "head:99999"}, "service address"),
        ({"namespace": "Not_A_Name"}, "namespace"),
        ({"gcs_bucket": "bucket"}, "bucket"),
        ({"wait": "soon"}, "seconds"),
        ({"wait": "nan"}, "seconds"),
        ({"lease_seconds": 0}, "seconds"),
        ({"cluster": "c"}, "project"),
        ({"profile": "nobody"}, "no profile"),
        ({"colour": "red"}, "Unknown setting"),
    ],
)
def test_bad_input_is_one_clear_line_with_a_way_out(arguments, word):
    with pytest.raises(ConfigError) as caught:
        config.resolve(arguments, environ={})
    assert word in str(caught.value)
    assert caught.value.hint
    assert "\n" not in str(caught.value)


def test_a_broken_profiles_file_is_named(profiles_file):
    profiles_file.write_text("[profiles.team\n")
    with pytest.raises(ConfigError, match=r"pathways\.toml"):
        config.resolve({}, environ={})


def test_the_runtime_directory_is_private(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    assert config.runtime_dir().stat().st_mode & 0o777 == 0o700
