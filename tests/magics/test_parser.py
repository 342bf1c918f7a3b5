"""Reading a magic's line: what is meant, and how mistakes are reported."""

import pytest

from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.tpu import parse_instances
from pathways_jupyter.commands.tables import MAGIC
from pathways_jupyter.magics.parser import parse, run


def test_a_line_becomes_a_command_with_only_what_was_given():
    call = parse("connect --tpu tpuv6e:2x2=2 --local --wait", MAGIC)
    assert call.command.name == "connect"
    assert call.values == {"tpu": "tpuv6e:2x2=2", "local": True, "wait": "inf"}


def test_words_and_short_options_are_read():
    assert parse("logs worker 1 -f --tail=5", MAGIC).values == {
        "program": "worker",
        "slice": "1",
        "follow": True,
        "tail": "5",
    }


def test_a_command_of_a_group_has_two_words():
    call = parse("service deploy mine --tpu tpuv5e:4x4 --slices 2", MAGIC)
    assert (call.command.name, call.values) == (
        "service deploy",
        {"name": "mine", "tpu": "tpuv5e:4x4", "slices": "2"},
    )
    assert parse("service show --help", MAGIC).values == {"command": "service show"}
    assert parse("help service show", MAGIC).values == {"command": "service show"}
    with pytest.raises(ConfigError, match="service needs one of its commands") as raised:
        parse("service", MAGIC)
    assert "deploy, show, wait, delete" in raised.value.hint
    with pytest.raises(ConfigError, match="no command service deplyo") as raised:
        parse("service deplyo mine", MAGIC)
    assert "Did you mean deploy?" in raised.value.hint
    for line in ("service show", "save"):
        with pytest.raises(ConfigError, match="Missing argument 'NAME'"):
            parse(line, MAGIC)
    assert parse("save friday", MAGIC).values == {"name": "friday"}
    assert parse("save friday w b", MAGIC).values == {"name": "friday", "variables": ("w", "b")}


def test_a_word_with_choices_may_be_left_out():
    assert parse("logs", MAGIC).values == {}
    assert parse("logs --tail 3", MAGIC).values == {"tail": "3"}


def test_a_comment_may_follow():
    assert parse("connect --local   # it's here", MAGIC).values == {"local": True}
    assert parse("# nothing yet", MAGIC).command.name == "help"
    assert parse("save 'a #1' \"b # 2\" c # it's here", MAGIC).values == {"name": "a #1", "variables": ("b # 2", "c")}
    assert parse("connect --kubeconfig /home/me/a#b", MAGIC).values == {"kubeconfig": "/home/me/a#b"}


def test_a_semicolon_at_the_end_is_ipythons():
    assert parse("status;", MAGIC).command.name == "status"
    assert parse("logs rm ;", MAGIC).values == {"program": "rm"}


def test_a_repeated_option_is_a_list():
    line = "connect --proxy-options=--xla_a=1 --proxy-options=--xla_b=2"
    assert parse(line, MAGIC).values["proxy_options"] == ("--xla_a=1", "--xla_b=2")


def test_a_value_that_begins_with_dashes_may_follow_its_option_as_help_shows_it():
    line = "connect --proxy-options --xla_a=1 --proxy-options=--xla_b=2 --local"
    assert parse(line, MAGIC).values == {"proxy_options": ("--xla_a=1", "--xla_b=2"), "local": True}
    deploy = "service deploy mine --tpu tpuv5e:4x4 --worker-options"
    assert parse(f"{deploy} --x=1 --dry-run", MAGIC).values["worker_options"] == ("--x=1",)


@pytest.mark.parametrize(
    "written", ['{"tpuv6e:2x2": 2}', "'{\"tpuv6e:2x2\": 2}'", "{'tpuv6e:2x2': 2}", "\"{'tpuv6e:2x2': 2}\""]
)
def test_a_dictionary_is_one_word_quoted_or_not(written):
    call = parse(f"connect --tpu {written} --local", MAGIC)
    assert parse_instances(call.values["tpu"]) == {"tpuv6e:2x2": 2}
    assert call.values["local"] is True


def test_the_peers_names_are_flags_too_and_contradictions_are_left_to_be_seen():
    line = "connect --tpu v6e-4 --expected-tpu-instances tpuv6e:2x4=1 --pathways-service one --proxy-server-image two"
    assert parse(line, MAGIC).values == {
        "tpu": "v6e-4",
        "expected_tpu_instances": "tpuv6e:2x4=1",
        "pathways_service": "one",
        "proxy_server_image": "two",
    }


@pytest.mark.parametrize(
    ("line", "word", "hint"),
    [
        ("connect --tpx 1", "'--tpx'", "--tpu"),
        ("connect --cont my-gke", "'--cont'", "--context"),
        ("connect --tpu", "--tpu", "connect --help"),
        ("connect 'open", "quotation", "Close"),
        ("logs rm \\", "No escaped character", "backslash"),
        ("connect stray", "'stray'", "connect --help"),
        ("logs wroker", "wroker", "logs --help"),
    ],
)
def test_a_mistake_is_one_line_with_a_way_out(line, word, hint):
    with pytest.raises(ConfigError) as caught:
        parse(line, MAGIC)
    assert word in str(caught.value)
    assert hint in caught.value.hint
    assert "\n" not in str(caught.value) + caught.value.hint
    # What click had to say is in the message; there is nothing more in the traceback.
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(("line", "hint"), [("conect", "Did you mean connect? The command help lists all of them."),
                                            ("xyzzy", "The command help lists all of them.")])  # fmt: skip
def test_the_hint_for_a_typo_does_not_list_every_command(line, hint):
    with pytest.raises(ConfigError, match=f"There is no command '{line}'") as raised:
        parse(line, MAGIC)
    assert raised.value.hint == hint


@pytest.mark.parametrize("line", ["job --help", "job -h", "help job", "job help"])
def test_the_help_of_a_group_is_that_of_its_commands(line):
    assert run(line, MAGIC, "%pathways", None).value.keys() == {name for name in MAGIC if name.startswith("job ")}


@pytest.mark.parametrize("line", ["help job nonsense", "job nonsense"])
def test_a_command_that_a_group_does_not_have_is_named_with_those_that_it_has(line):
    with pytest.raises(ConfigError, match="There is no command job nonsense") as raised:
        run(line, MAGIC, "%pathways", None)
    assert "There are: new, apply, list" in raised.value.hint
