"""Settings: where each comes from, and what is refused."""

import dataclasses
import inspect
import math
import os
import re

import pytest

import pathways_jupyter
from pathways_jupyter.base import config, setting_sources
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.sentences import Face, worded
from pathways_jupyter.commands.session import CONNECT
from pathways_jupyter.magics import function


@pytest.fixture(autouse=True)
def profiles_file(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path))
    return tmp_path / "pathways.toml"


def test_an_argument_beats_the_environment_which_beats_the_profile(profiles_file):
    profiles_file.write_text('[profiles.team]\nnamespace = "research"\ncontext = "tpus"\nwait = 5\n')
    environ = {"PATHWAYS_JUPYTER_NAMESPACE": "staging", "PATHWAYS_JUPYTER_WAIT": "inf"}
    found = setting_sources.resolve({"profile": "team", "namespace": "mine", "context": None}, environ=environ)
    assert (found.namespace, found.wait, found.context) == ("mine", math.inf, "tpus")


def test_instances_replace_a_profiles_tpu(profiles_file):
    profiles_file.write_text('[profiles.default]\ntpu = "tpuv6e:2x2=2"\n')
    assert setting_sources.resolve({"expected_tpu_instances": {"tpuv5e:4x4": 1}}, environ={}).instances == {
        "tpuv5e:4x4": 1
    }


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"tpu": "tpuv6e:9x9"}, "topology"),
        ({"service": "head:port"}, "service address"),
        ({"pathways_service": "a:b:1"}, "service address"),
        ({"pathways_service": "head:99999"}, "service address"),
        ({"namespace": "Not_A_Name"}, "namespace"),
        ({"gcs_bucket": "bucket"}, "bucket"),
        ({"wait": "soon"}, "seconds"),
        ({"wait": "nan"}, "seconds"),
        ({"lease_seconds": 1}, "lease_seconds must be at least 10 and at most 2147483647 seconds, not 1"),
        ({"lease_seconds": math.inf}, "lease_seconds must be at least 10 and at most 2147483647 seconds, not inf"),
        ({"lease_seconds": "99999999999999"}, "at most 2147483647 seconds, not '99999999999999'"),
        ({"lease_seconds": "x"}, "lease_seconds must be a number of seconds, not 'x'"),
        ({"max_lifetime": 0.5}, "max_lifetime must be at least 60 and at most 2147483647 seconds, or inf for no limit"),
        ({"max_lifetime": "1e30"}, "or inf for no limit, not '1e30'"),
        ({"max_lifetime": 10**400}, "max_lifetime must be a number of seconds"),
        ({"linger": -1}, "linger must be at least 0 and at most 2147483647 seconds, or inf for no limit, not -1"),
        ({"keep": "inf"}, "keep must be more than 0 and at most 2147483647 seconds, not 'inf'"),
        ({"timeout": "0"}, "timeout must be more than 0 and at most 2147483647 seconds, or inf for no limit, not '0'"),
        ({"timeout": True}, "timeout must be a number of seconds, not True"),
        ({"local": "perhaps"}, "true or false"),
        ({"tpu": 5}, "tpu must be instance types"),
        ({"tpu": {"tpuv6e:2x2": 1, "v6e-4": 2}}, "tpuv6e:2x2 occurs twice"),
        ({"tpu": {"tpuv6e:2x2": "9" * 5000}}, "must be a whole number of at least 1, at most 2147483647"),
        ({"at_least": "9" * 5000}, "at_least must be a whole number of at least 1, not '999"),
        ({"at_least": 0}, "at_least must be a whole number of at least 1, not 0"),
        ({"context": ["a"]}, "context must be a string, not ['a']"),
        ({"proxy_options": 5}, "proxy_options must be a list of strings, not 5"),
        ({"proxy_options": [1]}, "proxy_options must be a list of strings, not [1]"),
        ({"service": "one", "pathways_service": "two"}, "service and pathways_service are two names of one setting"),
        ({"tpu": "tpuv6e:2x2=1", "expected_tpu_instances": {"tpuv6e:2x2": 2}}, "two names of one setting"),
        ({"cluster": "c"}, "project"),
        ({"keep": 60, "relay": False}, "keep was given, but no relay"),
        ({"relay_image": "python:3.13", "relay": "no"}, "relay_image was given, but no relay"),
        ({"profile": "missing"}, "no profile"),
        ({"colour": "red"}, "Unknown setting"),
    ],
)
def test_bad_input_is_one_clear_line_with_a_way_out(arguments, word):
    with pytest.raises(ConfigError) as caught:
        setting_sources.resolve(arguments, environ={})
    assert word in str(caught.value)
    assert caught.value.hint
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "in_notebook", "in_script"),
    [
        ({"wait": "soon"}, "--wait 60", "wait=60"),
        ({"suspend_after": "soon"}, "--suspend-after 2h", 'suspend_after="2h"'),
        ({"tpu": 5}, "--tpu tpuv6e:2x2=2", 'tpu="tpuv6e:2x2=2"'),
        ({"local": "perhaps"}, "--local", "local=True"),
        ({"at_least": 0}, "--at-least 1", "at_least=1"),
    ],
)
def test_an_example_is_written_as_where_the_value_was_given(arguments, in_notebook, in_script):
    with pytest.raises(ConfigError) as caught:
        setting_sources.resolve(arguments, environ={})
    for face, written in ((Face.NOTEBOOK, in_notebook), (Face.SCRIPT, in_script)):
        assert worded(caught.value.hint, face) == f"For example: {written}."


def test_a_profile_that_names_another_one_is_refused(profiles_file):
    profiles_file.write_text('[profiles.default]\nprofile = "team"\n[profiles.team]\nwait = 5\n')
    with pytest.raises(ConfigError, match=r"Profile 'default' of .*pathways\.toml names another profile"):
        setting_sources.resolve({}, environ={})
    assert setting_sources.resolve({"profile": "team"}, environ={}).wait == 5


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        ({"gcs_bucket": "s3://x/y"}, "Write it as gs://x/y."),
        ({"gcs_bucket": "x/"}, "Write it as gs://x."),
        ({"gcs_bucket": "gs://"}, "Write it as gs://BUCKET."),
        ({"relay": "maybe"}, "For example: --relay."),
    ],
)
def test_the_advice_is_for_what_was_given(arguments, advice):
    with pytest.raises(ConfigError) as caught:
        setting_sources.resolve(arguments, environ={})
    assert caught.value.hint == advice


@pytest.mark.parametrize("text", ["[profile.team]\nwait = 5\n", "wait = 5\n"])
def test_what_is_no_profile_is_named(profiles_file, text):
    profiles_file.write_text(text)
    with pytest.raises(ConfigError, match=r"pathways\.toml: (profile|wait) is not known here") as caught:
        setting_sources.profiles()
    assert "[profiles.NAME]" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[profiles.team\n", "cannot be read: "),
        ("a = " + "[" * 5000, "cannot be read: it is nested too deeply"),
        ("a = " + "9" * 5000, "cannot be read: Exceeds the limit"),
    ],
    ids=["broken", "deep", "digits"],
)
def test_a_file_that_python_cannot_read_is_refused_in_a_sentence(profiles_file, text, said):
    profiles_file.write_text(text)
    with pytest.raises(ConfigError, match=rf"pathways\.toml {said}"):
        setting_sources.resolve({}, environ={})


def test_a_named_pipe_instead_of_the_file_is_not_waited_for(profiles_file):
    os.mkfifo(profiles_file)
    with pytest.raises(ConfigError, match=r"pathways\.toml cannot be read: it is not a file"):
        setting_sources.resolve({}, environ={})


def test_the_runtime_directory_is_private(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    assert config.runtime_dir().stat().st_mode & 0o777 == 0o700


def test_every_setting_has_the_same_name_everywhere(profiles_file):
    """As an argument, as a flag, in the environment and in a profile, and the peer's names are understood in all."""
    profiles_file.write_text('[profiles.team]\nservice = "one"\ntpu = {"tpuv6e:2x2" = 2}\nproxy_image = "proxy:1"\n')
    by_profile = setting_sources.resolve({"profile": "team"}, environ={})
    values = {"service": "one", "tpu": "tpuv6e:2x2=2", "proxy_image": "proxy:1"}
    environ = {f"PATHWAYS_JUPYTER_{name.upper()}": value for name, value in values.items()}
    peers = {"pathways_service": "one", "expected_tpu_instances": "tpuv6e:2x2=2", "proxy_server_image": "proxy:1"}
    peers_environ = {f"PATHWAYS_JUPYTER_{name.upper()}": value for name, value in peers.items()}
    expected = setting_sources.resolve(values, environ={})
    assert (expected.service, expected.instances, expected.proxy_image) == ("one", {"tpuv6e:2x2": 2}, "proxy:1")
    assert expected == dataclasses.replace(by_profile, profile="") == setting_sources.resolve(peers, environ={})
    assert (
        expected == setting_sources.resolve({}, environ=environ) == setting_sources.resolve({}, environ=peers_environ)
    )
    flags = {
        option.flag.lstrip("-").replace("-", "_"): option.name for option in CONNECT.options if option.sets != "false"
    }
    assert set(flags) == set(flags.values()) == set(config.SETTINGS)
    aliases = {alias.lstrip("-").replace("-", "_") for option in CONNECT.options for alias in option.aliases}
    assert aliases == set(config.ALIASES)


def test_two_spellings_that_say_the_same_are_fine():
    asked = {"tpu": "tpuv6e:2x2=2", "expected_tpu_instances": {"tpuv6e:2x2": 2}}
    assert setting_sources.resolve(asked, environ={}).instances == {"tpuv6e:2x2": 2}


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("PATHWAYS_JUPYTER_NAMESPAEC", "PATHWAYS_JUPYTER_NAMESPACE"),
        ("PATHWAYS_JUPYTER_EXPECTED_TPU", "PATHWAYS_JUPYTER_EXPECTED_TPU_INSTANCES"),
        ("PATHWAYS_JUPYTER_LEASE", "PATHWAYS_JUPYTER_LEASE_SECONDS"),
    ],
)
def test_an_unknown_variable_is_named_with_the_nearest_one(name, nearest):
    with pytest.raises(ConfigError, match=f"Unknown setting {name}\\.") as caught:
        setting_sources.resolve({}, environ={name: "x"})
    assert caught.value.hint.startswith(f"Did you mean {nearest}?")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("proxy_options = 5", "proxy_options in profile 'team' of {path} must be a list of strings, not 5."),
        ("at_least = 0", "at_least in profile 'team' of {path} must be a whole number of at least 1, not 0."),
        ("wait = [1]", "wait in profile 'team' of {path} must be a number of seconds, not [1]."),
        ("namespace = 5", "namespace in profile 'team' of {path} must be a string, not 5."),
        ("local = 'no idea'", "local in profile 'team' of {path} must be true or false, not 'no idea'."),
        ("lease_seconds = true", "lease_seconds in profile 'team' of {path} must be a number of seconds, not True."),
        ("colour = 'red'", "Unknown setting colour in profile 'team' of {path}."),
    ],
)
def test_a_profile_with_a_value_that_cannot_be_is_one_clear_sentence(profiles_file, line, message):
    profiles_file.write_text(f"[profiles.team]\n{line}\n")
    with pytest.raises(ConfigError) as caught:
        setting_sources.resolve({"profile": "team"}, environ={})
    assert str(caught.value) == message.format(path=profiles_file)
    assert caught.value.hint.startswith(("For example: ", "Did you mean", "Settings: "))


@pytest.mark.parametrize("value", ["tpuv6e:2x2=9x", "tpuv6e:2x2=1,x"])
def test_a_variable_is_named_whatever_is_wrong_in_it(value):
    with pytest.raises(ConfigError, match="PATHWAYS_JUPYTER_TPU"):
        setting_sources.resolve({"tpu": "tpuv6e:2x2=1"}, environ={"PATHWAYS_JUPYTER_TPU": value})


def test_a_wait_may_be_true(profiles_file):
    profiles_file.write_text("[profiles.default]\nwait = true\n")
    assert setting_sources.resolve({}, environ={}).wait == math.inf
    assert setting_sources.resolve({"wait": False}, environ={}).wait == 0
    assert setting_sources.resolve({}, environ={"PATHWAYS_JUPYTER_WAIT": "true"}).wait == math.inf


def test_settings_of_a_relay_may_stand_where_the_relay_is_not_asked_for(profiles_file):
    profiles_file.write_text("[profiles.default]\nkeep = 60\n[profiles.team]\nrelay = true\n")
    assert not setting_sources.resolve({}, environ={"PATHWAYS_JUPYTER_RELAY_IMAGE": "python:3.13"}).relay
    assert setting_sources.resolve({"profile": "team", "keep": 60}, environ={}).keep == 60
    assert setting_sources.resolve({"keep": 60}, environ={"PATHWAYS_JUPYTER_RELAY": "1"}).keep == 60
    assert setting_sources.resolve({"relay": True}, environ={}).keep == 60
    assert setting_sources.resolve({"relay": False}, environ={}).relay is False


@pytest.mark.parametrize("given", [{"keep": 60}, {"relay_image": "python:3.13"}])
def test_a_setting_of_a_relay_that_is_given_asks_for_one(given):
    """On the embedded cluster it would do nothing otherwise."""
    assert setting_sources.resolve({}, environ={}).relay is None
    assert setting_sources.resolve(given, environ={}).relay is True


def test_seconds_that_kubernetes_stores_are_whole():
    given = {"max_lifetime": 3600.4, "lease_seconds": "10.5", "relay": True, "keep": 0.5, "wait": 0.5}
    found = setting_sources.resolve(given, environ={"PATHWAYS_JUPYTER_TIMEOUT": "0.5"})
    assert (found.max_lifetime, found.lease_seconds, found.keep) == (3601, 11, 1)
    assert (found.wait, found.timeout) == (0.5, 0.5)
    assert setting_sources.resolve({"max_lifetime": "inf"}, environ={}).max_lifetime == math.inf


@pytest.mark.parametrize("name", ["wait", "linger", "max_lifetime", "lease_seconds", "keep", "timeout"])
def test_seconds_have_the_same_bounds_wherever_they_are_given(profiles_file, name):
    profiles_file.write_text(f"[profiles.team]\n{name} = 1e30\n")
    variable = f"PATHWAYS_JUPYTER_{name.upper()}"
    for arguments, environ in (({name: 1e30}, {}), ({}, {variable: "1e30"}), ({"profile": "team"}, {})):
        with pytest.raises(ConfigError, match="at most 2147483647 seconds"):
            setting_sources.resolve(arguments, environ=environ)


@pytest.mark.parametrize(("value", "wanted"), [("soon", "a time, not 'soon'"), ("-3", "at least 0 and at most")])
def test_a_time_that_is_none_shows_the_setting_as_one_gives_it(value, wanted):
    with pytest.raises(ConfigError, match=wanted) as caught:
        config.SETTINGS["suspend_after"].check(value, "suspend_after")
    assert caught.value.hint == "For example: --suspend-after 2h."
    with pytest.raises(ConfigError, match=wanted) as caught:
        setting_sources.resolve({}, environ={"PATHWAYS_JUPYTER_SUSPEND_AFTER": value})
    assert caught.value.hint == "For example: PATHWAYS_JUPYTER_SUSPEND_AFTER=2h."


def test_a_runtime_directory_that_cannot_be_made_is_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "file" / "runtime"))
    with pytest.raises(ConfigError, match="cannot be created") as caught:
        config.runtime_dir()
    assert "JUPYTER_RUNTIME_DIR" in caught.value.hint


def test_connect_passes_on_every_keyword(monkeypatch):
    passed = {}
    monkeypatch.setattr(function, "connect", lambda arguments, **more: passed.update(arguments, **more))
    values = {name: object() for name in inspect.signature(pathways_jupyter.connect).parameters}
    pathways_jupyter.connect(**values)
    assert passed == values


def test_the_signature_and_docstring_of_connect_agree_with_the_table():
    """They are written out for editors; the sentences may have marks for code."""
    keywords = inspect.signature(pathways_jupyter.connect).parameters
    assert not config.SETTINGS.keys() - keywords.keys(), "connect() in pathways_jupyter/__init__.py lacks these"
    assert list(keywords)[: len(config.SETTINGS)] == list(config.SETTINGS), "connect() has another order"
    assert {keywords[name].default for name in (*config.SETTINGS, *config.ALIASES)} == {None}
    arguments = inspect.getdoc(pathways_jupyter.connect).partition("\nArgs:\n")[2].partition("\n\n")[0]
    written = dict(re.findall(r"^  (\w+): (.*(?:\n    .*)*)", arguments.replace("`", ""), re.MULTILINE))
    assert not keywords.keys() - written.keys(), "the docstring of connect() lacks these"
    assert list(written) == list(keywords), "the docstring of connect() has another order"
    for name, setting in config.SETTINGS.items():
        default = f" Default: {setting.shown}." if setting.shown else ""
        expected = f"{setting.about[0].upper()}{setting.about[1:]}.{default}"
        assert " ".join(written[name].split()) == expected
    for alias, name in config.ALIASES.items():
        assert written[alias] == f"Another name of {name}."
