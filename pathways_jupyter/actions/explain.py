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
    wanted = " ".join(values.get("topic") or ())
    found = pages.find(wanted) if wanted else pages.sections()
    if not found:
        close = difflib.get_close_matches(topic_of(wanted), pages.topics(), n=3, cutoff=0.5)
        meant = f"Did you mean {', '.join(close)}? " if close else ""
        raise ConfigError(
            f"Nothing explains {wanted!r}.", hint=advice("{meant}{explain} lists all topics.", meant=meant)
        )
    is_named = found[0].topic == topic_of(wanted.rpartition(".")[2])
    whole = is_named or len(found) == 1
    return render.sections(found, shell.face) if whole else render.contents(found, shell.face)


ACTIONS: Mapping[str, Action] = {"explain": explain}
