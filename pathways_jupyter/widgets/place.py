"""One output of a notebook that is updated in place."""

from __future__ import annotations

import uuid
from typing import Any

from pathways_jupyter.render.view import View


class Place:
    """An output that can be drawn repeatedly.

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
        """Replace this output by `view`; callable from any thread.

        The first call creates the output below the cell that runs, or ran last.
        """
        self._shell.display_pub.publish(view._repr_mimebundle_(), transient={"display_id": self._id}, update=self.drawn)
        self.drawn = True
