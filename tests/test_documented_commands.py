"""Every command line in the documents is one that the command line and the magics accept."""

import contextlib
import importlib
import io
import pkgutil
import re
import shlex
from pathlib import Path

import click
import pytest

from pathways_jupyter import commands
from pathways_jupyter.cli import main
from pathways_jupyter.commands.declaration import Command
from pathways_jupyter.commands.tables import MAGIC
from pathways_jupyter.magics import parser

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    # What is generated from the declarations names commands by themselves.
    *(each for each in sorted((ROOT / "docs").rglob("*.md")) if "generated" not in each.parts),
]
PROGRAM = "pathways-jupyter"
OF_OTHERS = re.compile(
    r"\b(pip|kubectl|gcloud|gcluster|xpk|nbconvert|xprof)\b|^jupyter --config-dir$|^--enable-network-policy$"
    r"|^--(reservation|spot|flex-start|workload-pool|workload-metadata)\b"
    r"|^--xla_|^jupyter lab --gateway-url$|^--machine-type=|^(ssh )?--worker=all$|^--sidecar_name="
    r"|^--(compute-type|topology|num-slices|tpu-type|workload|pathways-gcs-location|pathways-headless)$"
)
"""Options of other programs."""


def name_of(page):
    return str(page.relative_to(ROOT))


def blocks(text):
    """The lines of code blocks, fenced or indented, with continued lines as one."""
    fenced, code = False, []
    for line in text.replace("\\\n", " ").splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            code.append(line.strip())
    return code


def words(line):
    """The words of the first command of a shell's line, without what follows a pipe, a redirection or a comment."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.commenters = "#"
    # shlex takes these for the ends of words.
    lexer.wordchars += ",=:%@+[]{}$^!"
    found = []
    for word in lexer:
        if set(word) <= set("|&;<>()"):
            break
        found.append(word)
    return found


def written(marker):
    """Each place in the documents where `marker` begins a command: page, command, and whether it is a whole one."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for line in blocks(text):
            if line.removeprefix("$ ").startswith(f"{marker} "):
                yield name_of(page), line.removeprefix("$ "), True
        prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        for line in re.findall(rf"`({re.escape(marker)} [^`]*)`", prose):
            yield name_of(page), line, False


def parse(given):
    """Parse the words after the program's name as the command line does, and run nothing."""
    name, command, context = PROGRAM, main, None
    while True:
        context = command.make_context(name, given, parent=context)
        if not isinstance(command, click.Group):
            return
        rest = [*context._protected_args, *context.args]
        if not rest:
            return
        name, command, given = command.resolve_command(context, rest)


@pytest.mark.parametrize("page", [name_of(page) for page in PAGES])
def test_each_command_line_in_a_page_is_accepted(page):
    problems = []
    for where, line, whole in written(PROGRAM):
        if where != page:
            continue
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                parse(words(line)[1:])
        except click.exceptions.Exit:
            # --help and --version end here.
            continue
        except (click.MissingParameter, click.exceptions.NoArgsIsHelpError) as error:
            # In a sentence, a command may be named without its arguments.
            if whole:
                problems.append(f"{line}: {error.format_message()}")
        except click.ClickException as error:
            problems.append(f"{line}: {error.format_message()}")
    assert problems == [], "\n".join(problems)


def test_each_line_of_a_magic_in_a_page_is_accepted():
    lines = {(page, line) for page, line, whole in written("%pathways") if whole}
    assert len(lines) >= 6
    for page, line in sorted(lines):
        call = parser.parse(line.removeprefix("%pathways "), MAGIC)
        assert call.command in MAGIC.values(), (page, line)


def test_a_command_line_that_is_wrong_is_noticed():
    known = [line for page, line, _ in written(PROGRAM) if page == "docs/clusters.md"]
    assert sum("service deploy" in line for line in known) >= 3
    with pytest.raises(click.NoSuchOption):
        parse(["service", "deploy", "team", "--no-such-option"])
    with pytest.raises(click.UsageError):
        parse(["no-such-command"])


def test_each_option_that_a_page_names_exists():
    known = set(of_the_command_line(main, click.Context(main))) | {"--help", "--version"}
    for module in pkgutil.iter_modules(commands.__path__):
        for each in vars(importlib.import_module(f"{commands.__name__}.{module.name}")).values():
            every = each.values() if isinstance(each, dict) else each if isinstance(each, tuple) else [each]
            known |= {o.flag for command in every if isinstance(command, Command) for o in command.options}
    for page in PAGES:
        prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for code in re.findall(r"`([^`\n]+)`", prose):
            if not OF_OTHERS.search(code):
                unknown = set(re.findall(r"(?<![\w=-])--[a-zA-Z][\w-]*", code)) - known
                assert not unknown, (name_of(page), code)


def of_the_command_line(command, context):
    """All options of `command` and of the commands in it."""
    for parameter in command.params:
        yield from parameter.opts if isinstance(parameter, click.Option) else ()
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        yield from of_the_command_line(command.get_command(context, name), context)
