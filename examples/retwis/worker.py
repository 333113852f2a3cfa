"""A process of Retwis clients. Each makes one call after the other, and notes each call before it and its result after it.

    python -m examples.retwis.worker URL --name w1 --notes DIRECTORY

The process runs until its standard input closes, and prints nothing. Notes are lines of JSON in DIRECTORY/NAME.notes. Each line
is one write of the kernel, so a killed process leaves whole lines. A snapshot that is inconsistent, such as a timeline that lists a
post that does not exist, is noted as a fault.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

import boki
from boki_common.errors import BokiError, Trimmed
from bokistore import BokiStore, StoreSettings
from examples import process
from examples.retwis.app import NameTaken, Retwis
from examples.retwis.checks import DONE, REFUSED, UNKNOWN
from examples.retwis.mix import MixStep, OperationMix

BOOK: Final = "retwis"
PASSWORD: Final = "password"
SETTINGS: Final = StoreSettings(checkpoint_records=40, grace_ms=5_000)
"""Frequent checkpoints and trims, so that processes are killed in the middle of them."""
FOLLOWEES: Final = 4
TIMEOUT_S: Final = 10.0
WRONG: Final = "wrong"


class NoteFile:
    """File of notes that survives a kill."""

    def __init__(self, file: str) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, **facts: Any) -> None:
        """Append a line of JSON."""
        line = msgspec.json.encode(facts) + b"\n"
        assert os.write(self._file, line) == len(line)


class RetwisClient:
    """Client that registers a user, follows some others, and then calls the operations of the mix."""

    def __init__(self, retwis: Retwis, note_file: NoteFile, name: str) -> None:
        self._retwis = retwis
        self._note_file = note_file
        self._mix = OperationMix(name)
        self._first_name = name
        self._name = name
        self._number = 0
        self._unknowns = 0
        self._users: list[str] = []

    async def run(self, stop: asyncio.Event) -> None:
        """Make calls until `stop` is set."""
        me = None
        while me is None and not stop.is_set():
            me = await self._register()
        for _ in range(FOLLOWEES):
            other = await self._some_user()
            if me and other and other != me and not stop.is_set():
                about = {"follower": me, "followee": other}
                await self._call("follow", about, self._retwis.follow(me, other))
        while not stop.is_set():
            await self._step(self._mix.step(1_000_000))

    async def _register(self) -> str | None:
        name = f"{self._name}.{self._number}"
        found: str | None = await self._call("register", {"name": name}, self._retwis.register(name, PASSWORD))
        return found

    async def _some_user(self, number: int | None = None) -> str | None:
        """Return the id of a user, random or by number; its registration may have failed. None: there is none yet."""
        try:
            most = await self._retwis.store.object("next_user_id").get("n", 0, type=int)
        except BokiError:
            return None
        return f"{1 + (number if number is not None else self._mix.step(10**6).user) % most:08x}" if most else None

    async def _step(self, step: MixStep) -> None:
        id = await self._some_user(step.user)
        if id is None:
            return
        if step.operation == "post":
            about = {"id": f"{self._name}.{self._number}", "author": id, "body": self._mix.body()}
            await self._call("post", about, self._retwis.post(id, about["id"], about["body"], self._choose))
        elif step.operation == "profile":
            await self._call("profile", {}, self._retwis.profile(id))
        elif step.operation == "posts":
            await self._call("posts", {}, self._retwis.posts(None if step.of_all else id))
        else:
            known = await self._call("profile", {}, self._retwis.profile(id))
            if known:
                auth = await self._call("login", {}, self._retwis.login(known["username"], PASSWORD))
                if auth is not None and auth != known["auth"]:
                    self._note_file.note(
                        client=self._name, outcome=WRONG, fault=f"{known['username']} got the auth of another user"
                    )

    def _choose(self, followers: Any, count: int) -> list[str]:
        return self._mix.some(list(followers), count)

    async def _call(self, operation: str, about: Mapping[str, Any], call: Awaitable[Any]) -> Any:
        """Make a call, note it, and return its answer, or None without one."""
        self._number += 1
        notes = operation in ("register", "follow", "post")
        client, number = self._name, self._number
        self._note_file.note(client=client, number=number, operation=operation, about=about)
        outcome, answer = UNKNOWN, None
        try:
            answer = await call
            outcome = DONE
        except (Trimmed, NameTaken, boki.Conflict):
            outcome = REFUSED
        except AssertionError as fault:
            self._note_file.note(client=client, outcome=WRONG, fault=f"{operation}: {fault}")
        except BokiError as error:
            if error.definite:
                outcome = REFUSED
            elif notes:  # the call may still happen, after the next one: continue as a new client
                self._unknowns += 1
                self._name = f"{self._first_name}+{self._unknowns}"
        self._note_file.note(client=client, number=number, outcome=outcome, answer=answer if notes else None)
        return answer


async def run(url: str, name: str, notes: str, clients: int, stop: asyncio.Event) -> None:
    """Run the clients of the process until `stop` is set."""
    async with boki.connect(url, timeout=TIMEOUT_S) as client:
        retwis = Retwis(BokiStore(client.book(BOOK), settings=SETTINGS))
        note_file = NoteFile(notes)
        async with asyncio.TaskGroup() as group:
            for number in range(clients):
                group.create_task(RetwisClient(retwis, note_file, f"{name}-{number}").run(stop))
        await retwis.store.close()


def main() -> None:
    """Run the process."""
    parser = process.parser("examples.retwis.worker")
    parser.add_argument("--notes", type=Path, required=True, help="directory of the notes")
    parser.add_argument("--clients", type=int, default=8, help="number of clients")
    asked = parser.parse_args()
    notes = asked.notes / f"{asked.name}.notes"
    process.serve(partial(run, asked.url, asked.name, str(notes), asked.clients))


if __name__ == "__main__":
    main()
