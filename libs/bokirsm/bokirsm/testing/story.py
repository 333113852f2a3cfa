"""The story of a run: a line for each step, and a digest of all that was decided and done. Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import xxhash

from bokirsm.machine.declaration import Declaration, Reaction
from bokirsm.machine.handling import Handled, Work, reaction
from bokirsm.machine.refs import Ref
from bokirsm.model.events import Commit, Message
from bokirsm.model.machine_state import MachineState

CHARS: Final = 100
"""Characters of a value."""
LINE_CHARS: Final = 1_000


class Story:
    """The story of a run.

    Attributes:
        lines: one a step.
        machines: number of the machines that occur.
    """

    def __init__(self) -> None:
        self.lines: Final[list[str]] = []
        self._fired = ""
        self._hash: Final = xxhash.xxh3_128()

    @property
    def digest(self) -> str:
        """A digest of all commits and messages so far: two runs with one digest did the same."""
        return self._hash.hexdigest()

    def client(self, step: int, name: str) -> None:
        """Note a step of a program."""
        self._hash.update(f"{step} {name}".encode())
        self.lines.append(f"{step:>5}  {name} continues")

    def crashed(self, machine: str) -> None:
        """Note that a machine lost its volatile state."""
        self._hash.update(f"crash {machine}".encode())
        self.lines.append(f"       {short(machine)} crashes: its volatile state is lost")

    def handles(self, step: int, ref: Ref[Any], declaration: Declaration, state: MachineState, work: Work) -> None:
        """Note the begin of a handler, or an event that the state of its machine ignores."""
        self._fired = work.timer
        took = f"{work.event}{value_text(work.body)}" if work.event else ""
        what = "is created" + (f" with {took}" if took else "") if work.creates else f"takes {took}"
        if work.timer:
            what = f"timer {work.timer!r} fires: {took}"
        if reaction(declaration, state, work) is Reaction.IGNORE:
            what = f"{what}, and ignores it" if work.timer else f"ignores {took}"
        at = f" in {state.state}" if state.state else ""
        self.lines.append(f"{step:>5}  {ref.name} ({declaration.cls.__name__}{at}) {what}")

    def commits(self, handled: Handled, declaration: Declaration | None) -> None:
        """Note what a handler did."""
        self._hash.update(msgspec.msgpack.encode([handled.commit, handled.beside.outputs, handled.loose]))
        text = effects_text(handled, self._fired)
        if text and self.lines:
            line = f"{self.lines[-1]}: {text}"
            self.lines[-1] = line if len(line) <= LINE_CHARS else f"{line[: LINE_CHARS - 1]}…"

    def sent(self, message: Message) -> None:
        """Note a message on its way to an inbox."""
        self._hash.update(msgspec.msgpack.encode(message))
        if self.lines and self.lines[-1].endswith(" continues"):
            self.lines[-1] = f"{self.lines[-1].removesuffix('continues')}{_message_text(message)}"


def short(machine: str) -> str:
    """Return the name of a machine without its group and partition."""
    return machine.split("/", 2)[-1]


def effects_text(handled: Handled, fired: str = "") -> str:
    """Return what a handler did, as a line. `fired`: the timer that had fired, and is gone without being cancelled."""
    found = [commit_text(handled.commit, fired)] + [f"{_message_text(one)} at most once" for one in handled.loose]
    found += [f"emits {one.event}{value_text(one.body)} to {one.plugin}" for one in handled.beside.outputs]
    found += [f"adds {', '.join(type(event).__name__ for event in part.events)}" for part in handled.beside.parts]
    return ", ".join(text for text in found if text)


def commit_text(commit: Commit, fired: str = "") -> str:
    """Return what the commit of a handler has, as a line. `fired`: as for `effects_text`."""
    found = [f"enters {commit.state}"] if commit.state is not None else []
    found += [f"{name} = {value_text(value)}" for name, value in commit.registers.items()]
    for table, rows in commit.keys.items():
        for key, value in rows.items():
            found.append(f"{table}[{value_text(key)}] " + ("is removed" if value is None else f"= {value_text(value)}"))
    found += [_message_text(one) for one in (*commit.creates, *commit.sends)]
    found += [
        f"answers {value_text(one.body)}" if one.outcome == "answer" else f"{one.outcome}: {value_text(one.body)}"
        for one in commit.replies
    ]
    for one in commit.timers:
        if not one.is_removal:
            found.append(f"sets timer {one.name!r}")
        elif one.name != fired:
            found.append(f"cancels {one.name}")
    return ", ".join([*found, "halts"] if commit.halted else found)


def _message_text(message: Message) -> str:
    event = f"{message.event}{value_text(message.body)}" if message.event else ""
    if message.kind:
        return f"creates {message.kind} {short(message.to)}" + (f" with {event}" if event else "")
    return f"sends {event} to {short(message.to)}"


def value_text(data: bytes) -> str:
    """Return an encoded value as JSON; of a machine the name alone."""
    if not data:
        return ""
    try:
        text = msgspec.json.encode(_named(msgspec.msgpack.decode(data))).decode()
    except (msgspec.MsgspecError, TypeError, ValueError):
        text = f"{len(data)} bytes"
    return text if len(text) <= CHARS else f"{text[: CHARS - 1]}…"


def _named(value: Any) -> Any:
    """Return a value with machines as their names, and keys as text."""
    if isinstance(value, dict):
        return {str(key): _named(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_named(one) for one in value]
    if isinstance(value, str):
        parts = value.split("/", 2)
        return parts[2] if len(parts) == 3 and parts[1].isdigit() else value
    return value
