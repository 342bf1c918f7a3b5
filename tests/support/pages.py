"""A fake page of JupyterLab for the sidebar's server half: one WebSocket, and the messages received from it."""

import asyncio
import contextlib
import dataclasses

from pathways_jupyter.server.scope import Scope

DEADLINE = 90


class Page:
    """The messages sent to a page, and its state: the rows of one cluster, and the events and runs of each session."""

    def __init__(self, socket):
        self.socket = socket
        self.messages = []
        self.sessions, self.ended, self.kernels = [], [], []
        self.events, self.news = {}, []
        self.runs = {}
        self.scope = None
        self.identity = ""
        self.watch = None
        self.named = None
        self.rows = {}
        self._changed = asyncio.Event()

    async def look(self, **scope):
        whole = dataclasses.asdict(Scope(**scope))
        self.scope = whole
        await self.socket.send_json({"type": "look", "scope": whole})

    async def read(self):
        async for message in self.socket:
            self.take(message.json())

    async def until(self, true):
        async with asyncio.timeout(DEADLINE):
            while not true(self):
                self._changed.clear()
                await self._changed.wait()

    @property
    def slices(self):
        """The slices in view, by number."""
        return {row["number"]: row for row in self.rows.values()}

    @property
    def live(self):
        return self.watch is not None and self.watch["watch"] == "live"

    def take(self, message):
        self.messages.append(message)
        if message["type"] == "sessions":
            self.sessions, self.ended, self.kernels = message["sessions"], message["ended"], message["kernels"]
        elif message["type"] == "events":
            before = [] if message["reset"] else self.events.get(message["session"], [])
            self.events[message["session"]] = before + message["events"]
            self.news += message["events"] if message["news"] else []
        elif message["type"] == "elastic":
            self.runs[message["session"]] = message["run"]
        elif "identity" in message and message["scope"] == self.scope:
            if message["identity"] != self.identity:
                self.identity, self.rows = message["identity"], {}
            if message["type"] == "watch":
                self.watch = message
            elif message["type"] == "named":
                self.named = message["named"]
            elif message["type"] == "tables":
                self.rows = {} if message["reset"] else self.rows
                self.rows |= {row["id"]: row for row in message["put"].get("slices", ())}
                for key in message["drop"].get("slices", ()):
                    self.rows.pop(key, None)
        self._changed.set()


@contextlib.asynccontextmanager
async def reading(connection):
    """A page behind a WebSocket that is being opened."""
    async with connection as socket:
        page = Page(socket)
        reader = asyncio.create_task(page.read())
        try:
            yield page
        finally:
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader


@contextlib.asynccontextmanager
async def opened(server):
    """A page of `server`."""
    async with server.http() as http, reading(http.ws_connect(server.route("updates"), max_msg_size=0)) as page:
        yield page
