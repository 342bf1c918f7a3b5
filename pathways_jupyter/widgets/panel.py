"""Buttons in a notebook, for front ends without the sidebar: VS Code, Colab, a kernel on another server.

The view above them is HTML like every other output, so what is saved with the notebook stays readable; only the
controls are widgets, which need their kernel. They do what the magics do, and show the equivalent line.
A kernel handles a button after the cell that runs; the sidebar and the command line can act at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from typing import Any

import ipywidgets
from IPython.display import display

from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.base.tones import Tone
from pathways_jupyter.base.tpu import MACHINES
from pathways_jupyter.render.parts import indented, line, muted, remarks, toned
from pathways_jupyter.render.view import View, drawn
from pathways_jupyter.session.verdicts import SessionCommand, SessionVerdict
from pathways_jupyter.widgets.live import CellOutput

Act = Callable[[str, Mapping[str, Any]], View | None]
"""Runs a ``%pathways`` command with these values, redraws the card, and returns any other output."""

_CLOSED = "The controls need a running kernel: run %pathways panel again."


class Panel:
    """A session's card, and below it the controls to connect, reconnect and disconnect.

    Args:
      place: Where the card is drawn.
      draw: Draws the card there as it is now.
      act: Runs a button's command.
      answer: Returns the answer to a command now.
      cost: Returns the arrays that it has on the TPUs, in words; empty if there are none to lose.
      is_unused: Whether nothing was computed for long, for which it may be suspended soon.
    """

    def __init__(
        self,
        output: CellOutput,
        draw: Callable[[], None],
        act: Act,
        answer: Callable[[SessionCommand], SessionVerdict],
        cost: Callable[[], str],
        is_unused: Callable[[], bool],
    ) -> None:
        self._output, self._draw, self._act, self._answer, self._cost = output, draw, act, answer, cost
        self._is_unused = is_unused
        self.local = ipywidgets.Checkbox(value=True, description="embedded cluster on this machine", indent=False)
        kinds = sorted({f"{machine.version}:{topology}" for machine in MACHINES for topology in machine.topologies})
        self.type = ipywidgets.Combobox(value="tpuv6e:2x2", options=kinds, description="slice type")
        self.count = ipywidgets.BoundedIntText(value=1, min=1, max=4096, description="slices")
        self.service = ipywidgets.Text(placeholder="the only one", description="service")
        self.connect = ipywidgets.Button(description="Connect", button_style="primary", icon="plug")
        self.resume = ipywidgets.Button(description="Resume", button_style="primary", icon="play")
        self.reconnect = ipywidgets.Button(description="Reconnect", icon="exchange")
        self.disconnect = ipywidgets.Button(description="Disconnect", icon="times")
        self.keep = ipywidgets.Button(description="Keep", button_style="primary", icon="clock-o")
        self.line = ipywidgets.HTML()
        self.connect.on_click(lambda _: self._run("connect", self._values()))
        self.resume.on_click(lambda _: self._run("resume", {}))
        self.reconnect.on_click(lambda _: self._confirm(self.reconnect))
        self.disconnect.on_click(lambda _: self._confirm(self.disconnect))
        # Not as the others: no command is run, and nothing is drawn before the supervisor's answer.
        self.keep.on_click(lambda _: self._act("keep", {}))
        form = [self.local, self.type, self.count, self.service]
        for field in form:
            field.observe(lambda _: self._refresh(), names="value")
        self._form = ipywidgets.VBox(form)
        buttons = ipywidgets.HBox([self.connect, self.resume, self.reconnect, self.disconnect, self.keep])
        self._controls = ipywidgets.VBox([self._form, buttons, self.line])
        self._refresh()

    def _ipython_display_(self) -> None:
        self._draw()
        # Programs that cannot show the widget show this text, which says why.
        still = drawn(None, remarks([_CLOSED]))
        display({**self._controls._repr_mimebundle_(), **still._repr_mimebundle_()}, raw=True)

    def offer_keep(self) -> None:
        """Show the button *Keep* if nothing was computed for long; on any thread."""
        self.keep.layout.display = "" if self._is_unused() else "none"

    def _values(self) -> dict[str, Any]:
        tpu, service = f"{self.type.value}={self.count.value}", self.service.value.strip()
        values = {"local": self.local.value, "tpu": tpu, "service": service}
        return {name: value for name, value in values.items() if value}

    def _confirm(self, button: ipywidgets.Button) -> None:
        """Run the button's command; where that costs arrays on the TPUs, only after a second click."""
        confirmed, lost = button.button_style == "danger", self._cost()
        self._refresh()
        if lost and not confirmed:
            button.description, button.button_style = f"Really {button.description.lower()}?", "danger"
            self.line.value = f"{lost} on the TPUs would be lost."
            return
        self._run(button.description.lower(), {})

    def _run(self, command: str, values: Mapping[str, Any]) -> None:
        for button in (self.connect, self.resume, self.reconnect, self.disconnect):
            button.disabled = True
        shown = None
        try:
            shown = self._act(command, values)
        except PathwaysError as error:
            self._output.draw(drawn(None, line(toned(Tone.FAIL), str(error)), indented(line(muted(error.hint)))))
        except KeyboardInterrupt:
            self._draw()
        finally:
            self._refresh()
        if shown is not None:
            self.line.value = shown.html

    def _refresh(self) -> None:
        """Enable the buttons that apply now, and show the magic equivalent to Connect."""
        connected = not self._answer(SessionCommand.CONNECT_OTHERWISE).acts
        self._form.layout.display = "none" if connected else ""
        self.connect.disabled = connected
        for button, command in (
            (self.resume, SessionCommand.RESUME),
            (self.reconnect, SessionCommand.RECONNECT),
            (self.disconnect, SessionCommand.DISCONNECT),
        ):
            button.disabled = not self._answer(command).acts
        self.resume.layout.display = "none" if self.resume.disabled else ""
        for button, label in ((self.reconnect, "Reconnect"), (self.disconnect, "Disconnect")):
            button.description, button.button_style = label, ""
        flags = [f"--{name}" if value is True else f"--{name} {value}" for name, value in self._values().items()]
        line = " ".join(["%pathways connect", *flags])
        self.line.value = "" if connected else f"<code>{escape(line)}</code>"
        self.offer_keep()
