"""The check of a handler: it runs again, and has to do the same. What was committed is kept; the second run has no effect.

- On a copy of its volatile state: else it makes a choice that is not `self.random`, `self.now` or `self.uuid()`.
- Without volatile state, in another process, as after a crash (Proposition 3.1 of the paper): else volatile state, or the `hash` of a text,
  has an effect on what is stored or sent.
"""

from __future__ import annotations

import copy
from typing import Any, Final

import msgspec

from bokirsm.machine.declaration import Declaration
from bokirsm.machine.handling import Handled, HandlerFailed, Work, World, handle
from bokirsm.model.machine_state import MachineState
from bokirsm.testing.choices import RunTokens, StepChoices
from bokirsm.testing.errors import Fault
from bokirsm.testing.hashing import Hashes
from bokirsm.testing.story import effects_text

_BEGAN: Final = "its handler ran again on the same state, with the same choices"

_OF_PYTHON: Final = "random, time or ids of Python"
_CHARS: Final = 500
"""Characters of the effects of a handler in the text of a fault."""


class Checked:
    """A handler that is to be checked: what it gets, from before it runs.

    Attributes:
        copied: its volatile state could be copied.
    """

    def __init__(
        self,
        declaration: Declaration,
        state: MachineState,
        volatile: dict[str, Any],
        work: Work,
        world: World,
        tokens: int,
    ) -> None:
        """Keep what a handler gets. `tokens`: those that were made."""
        self.declaration: Final = declaration
        self.state: Final = state
        self.work: Final = work
        self.world: Final = world
        self.tokens: Final = tokens
        self.copied = True
        self.volatile: dict[str, Any] = {}
        try:
            self.volatile = copy.deepcopy(volatile)
        except Exception:  # noqa: BLE001 - locks and sockets cannot be copied: the check without volatile state is left
            self.copied = False

    def without(self, field: str) -> dict[str, Any]:
        """Return a copy of the volatile state without a field."""
        return {name: copy.deepcopy(value) for name, value in self.volatile.items() if name != field}


class _Again:
    """A handler that runs again."""

    def __init__(self, handled: Checked, choices: StepChoices, tokens: RunTokens, hashes: Hashes) -> None:
        self._handled: Final = handled
        self._choices: Final = choices
        self._tokens: Final = tokens
        self._hashes: Final = hashes
        self._process: Final = hashes.process

    def run(self, volatile: dict[str, Any], *, elsewhere: bool) -> Handled | str:
        """Return the effects, or the text of the error."""
        one = self._handled
        self._choices.repeat()
        self._tokens.count = one.tokens
        self._hashes.process = self._process + elsewhere
        try:
            return handle(one.declaration, one.state, volatile, one.work, one.world)
        except HandlerFailed as failed:
            return f"failed: {failed}"
        finally:
            self._hashes.process = self._process


def check_again(handled: Checked, did: Handled, choices: StepChoices, tokens: RunTokens, hashes: Hashes) -> None:
    """Run a handler again.

    Raises:
        Fault: it did not do the same.
    """
    again = _Again(handled, choices, tokens, hashes)
    if handled.copied:
        found = again.run(handled.without(""), elsewhere=False)
        if found != did:
            raise _fault(handled, "uncontrolled", _BEGAN, _OF_PYTHON, did, found)
    found = again.run({}, elsewhere=True)
    if found == did:
        return
    if again.run({}, elsewhere=False) == did:
        began = f"{_BEGAN} in another process"
        raise _fault(handled, "uncontrolled", began, "the hash of a text, which differs in each process", did, found)
    if not handled.declaration.volatiles or (handled.copied and again.run(handled.without(""), elsewhere=False) != did):
        raise _fault(handled, "uncontrolled", _BEGAN, _OF_PYTHON, did, found)
    fields = [name for name in handled.volatile if again.run(handled.without(name), elsewhere=False) != did]
    named = ", ".join(fields) or ", ".join(handled.declaration.volatiles)
    raise _fault(handled, "leak", f"{_BEGAN} after a crash", f"the volatile field {named}", did, found, named)


def _fault(
    handled: Checked, kind: Any, began: str, cause: str, did: Handled, found: Handled | str, field: str = ""
) -> Fault:
    machine, event = handled.declaration.cls.__name__, handled.work.event or "its creation"
    first = effects_text(did) or "nothing"
    second = found if isinstance(found, str) else effects_text(found) or "nothing"
    if first == second:
        first, second = (one if isinstance(one, str) else repr(msgspec.to_builtins(one.commit)) for one in (did, found))
    text = (
        f"{machine} at {event}: {began}, and did otherwise. What it stores and sends depends on {cause}\n"
        f"  first:  {_cut(first)}\n  then:   {_cut(second)}"
    )
    return Fault(kind, f"{machine} {event} {field}".strip(), text)


def _cut(text: str) -> str:
    return text if len(text) <= _CHARS else f"{text[: _CHARS - 1]}…"
