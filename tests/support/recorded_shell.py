"""A shell that keeps what an action says to it."""

from pathways_jupyter.base.sentences import Face


class RecordedShell:
    """A :class:`~pathways_jupyter.actions.shell.Shell` for calls without magic and without command line.

    Attributes:
      said: What was said as progress.
      lines: The lines of the output, each with what a program gets beside it.
      asked: The questions, each of which is answered with `answer`.
    """

    face = Face.TERMINAL

    def __init__(self, *, answer: bool = False) -> None:
        self.said: list[str] = []
        self.lines: list[tuple[str, dict]] = []
        self.asked: list[str] = []
        self.stopped = False
        self._answer = answer

    @property
    def can_answer(self) -> bool:
        return True

    def say(self, text: str) -> None:
        self.said.append(text)

    def line(self, text: str, **about) -> None:
        self.lines.append((text, about))

    def confirm(self, question: str) -> bool:
        self.asked.append(question)
        return self._answer

    def stop_following(self) -> None:
        self.stopped = True
