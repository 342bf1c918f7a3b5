"""Building blocks: text and HTML say the same, and words never become markup."""

import pytest

from pathways_jupyter.base.tones import Tone
from pathways_jupyter.render import parts
from pathways_jupyter.render.view import drawn, listing, preformatted

EVIL = "<script>alert(1)</script>"
BLOCKS = {
    "line": lambda: parts.line(EVIL, parts.muted(EVIL)),
    "code": lambda: parts.line(parts.code(EVIL)),
    "remarks": lambda: parts.remarks([EVIL]),
    "verbatim": lambda: parts.verbatim(EVIL),
    "table": lambda: parts.table((EVIL,), [(EVIL,), (parts.toned(Tone.OK, EVIL),)]),
    "fields": lambda: parts.fields([(EVIL, EVIL)]),
    "head": lambda: parts.head(EVIL, EVIL),
    "card": lambda: parts.card(Tone.OK, parts.line(EVIL)),
    "as of": lambda: parts.as_of(EVIL),
}


@pytest.mark.parametrize("block", BLOCKS)
def test_words_are_in_the_text_as_they_are_and_in_html_escaped(block):
    made = BLOCKS[block]()
    assert EVIL in made.text
    assert "<script" not in made.html
    assert "&lt;script&gt;" in made.html


def test_every_tone_has_a_mark_that_replaces_missing_words():
    assert [parts.toned(each).text for each in Tone] == ["✓", "…", "!", "✗", "·"]


def test_parts_below_each_other_leave_out_what_has_no_text():
    made = drawn(1, parts.line("a"), parts.Part("", "<hr>"), parts.spaced(parts.indented(parts.remarks(["b", "c"]))))
    assert made.text == "a\n\n  b\n  c"
    assert made.html.index(">a<") < made.html.index("<hr>") < made.html.index(">b<")


def test_a_list_that_is_empty_says_so_and_one_that_is_not_shows_its_rows():
    table = parts.table(("name",), [("one",)])
    assert listing([], table, none="There is none.").text == "There is none."
    assert listing(["one"], table, none="There is none.", note="Old.").text == "name\none\nOld."
    assert "<td>one</td>" in listing(["one"], table, none="There is none.").html


HOSTILE = "a\x1b[31mb\x1b]0;title\x07\u202egnp.exe\r\nFAKE: all is well\x9b2J"


@pytest.mark.parametrize(
    ("draw", "lines"),
    [
        (lambda words: parts.line(words), 2),
        (lambda words: parts.line(parts.muted(words)), 1),
        (lambda words: parts.toned(Tone.OK, words), 1),
        (lambda words: parts.once(Tone.OK, words, words), 1),
        (lambda words: parts.code(words), 1),
        (lambda words: parts.joined(words, words), 1),
        (lambda words: parts.remarks([words]), 1),
        (lambda words: parts.verbatim(words), 2),
        (lambda words: parts.table((words,), [[words]]), 2),
        (lambda words: parts.fields([(words, words)]), 1),
        (lambda words: parts.head(words, words), 1),
        (lambda words: parts.share_bar(words, [(words, "red", 1.0)]), 1),
        (lambda words: parts.as_of(words), 1),
        (lambda words: drawn(None, parts.Part(words, "")), 2),
        (lambda words: preformatted(words), 2),
    ],
)
def test_no_words_act_on_a_terminal_or_turn_the_writing_around(draw, lines):
    part = draw(HOSTILE)
    assert part.text.replace("\n", "").isprintable()
    assert len(part.text.split("\n")) == lines
    assert not set("\x1b\x07\x9b\u202e") & set(part.html)
