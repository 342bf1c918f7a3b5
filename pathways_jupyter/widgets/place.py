"""One output of a notebook that is drawn again in place."""

from __future__ import annotations

import uuid
from typing import Any

from pathways_jupyter.render.view import View


class Place:
    """Where a picture is drawn, again and again.

    Args:
      shell: IPython's shell of this kernel.

    Attributes:
      drawn: Whether anything was drawn yet; until then the output does not exist.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._id = uuid.uuid4().hex
        self.drawn = False

    def draw(self, view: View) -> None:
        """Show `view` here, instead of what was here; from any thread.

        The first time it appears below the cell that runs, or ran last.
        """
        self._shell.display_pub.publish(view._repr_mimebundle_(), transient={"display_id": self._id}, update=self.drawn)
        self.drawn = True
