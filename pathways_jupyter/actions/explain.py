"""``explain``: sections of the documentation about troubleshooting, settings and limits."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from pathways_jupyter.actions.shell import Action, Shell, Values
from pathways_jupyter.base import pages
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.sentences import advice, topic_of
from pathways_jupyter.render import help as render
from pathways_jupyter.render.view import View


def explain(shell: Shell, values: Values) -> View:
    """Return the section about a topic, the sections that its words lead to, or all topics.

    Raises:
      ConfigError: Nothing has this name, or these words.
    """
    topic = " ".join(values.get("topic") or ())
    sections = pages.find(topic) if topic else pages.sections()
    if not sections:
        close = difflib.get_close_matches(topic_of(topic), pages.topics(), n=3, cutoff=0.5)
        meant = f"Did you mean {', '.join(close)}? " if close else ""
        raise ConfigError(
            f"Nothing explains {topic!r}.", hint=advice("{meant}{explain} lists all topics.", meant=meant)
        )
    is_named = sections[0].topic == topic_of(topic.rpartition(".")[2])
    in_full = is_named or len(sections) == 1
    return render.sections(sections, shell.face) if in_full else render.contents(sections, shell.face)


ACTIONS: Mapping[str, Action] = {"explain": explain}
