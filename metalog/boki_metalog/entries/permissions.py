"""Who may say what to a sequencer or a controller. Pure.

| role in HELLO | beyond questions (STATUS, BARRIER, SUBSCRIBE) it may say |
|---|---|
| participant | nothing |
| engine | OPEN, REPORT, CARRY, CLOSE of its own shards; ORDER a TRIM or EXPIRE |
| controller | YIELD |
| administrator | YIELD; ORDER a TRIM, EXPIRE or LOST |
| none | a peer of an earlier version: everything, where no cluster token is asked for; else as a participant |

A role is what a peer says of itself. Where the cluster has a token, peers that do not send it are refused; so a role limits
honest processes, and their mistakes, to their own calls, and the token keeps others out. Who owns a shard, `term_server` knows.
"""

from __future__ import annotations

from typing import Final

from boki_common.errors import NotPermitted
from boki_metalog.entries.metalog_entry import Expire, Lost, Trim
from boki_metalog.entries.progress import Order

PARTICIPANT: Final = "participant"
ENGINE: Final = "engine"
CONTROLLER: Final = "controller"
ADMINISTRATOR: Final = "administrator"
OF_EARLIER_VERSION: Final = ""

_MAY_ORDER: Final[dict[type[Order], frozenset[str]]] = {
    Trim: frozenset((ENGINE, ADMINISTRATOR)),
    Expire: frozenset((ENGINE, ADMINISTRATOR)),
    Lost: frozenset((ADMINISTRATOR,)),
}
_MAY_YIELD: Final = frozenset((CONTROLLER, ADMINISTRATOR))
_ROLES: Final = frozenset((PARTICIPANT, ENGINE, CONTROLLER, ADMINISTRATOR))


class Rights:
    """What one connection may say, by the role that its HELLO named."""

    __slots__ = ("role", "shards")

    def __init__(self, role: str, *, token_asked: bool) -> None:
        """`role` as HELLO has it: one that is not known, of a later version, is a participant's."""
        if role == OF_EARLIER_VERSION and not token_asked:
            self.role = OF_EARLIER_VERSION
        else:
            self.role = role if role in _ROLES else PARTICIPANT
        self.shards: Final = self.role in (ENGINE, OF_EARLIER_VERSION)
        """Whether it may open, report, carry and close shards."""

    def check_shards(self, what: str) -> None:
        """Raises NotPermitted."""
        if not self.shards:
            raise self._refusal(what, frozenset((ENGINE,)))

    def check_order(self, command: Order) -> None:
        """Raises NotPermitted."""
        roles = _MAY_ORDER[type(command)]
        if self.role not in roles and self.role != OF_EARLIER_VERSION:
            raise self._refusal(type(command).__name__.upper(), roles)

    def check_yield(self) -> None:
        """Raises NotPermitted."""
        if self.role not in _MAY_YIELD and self.role != OF_EARLIER_VERSION:
            raise self._refusal("YIELD", _MAY_YIELD)

    def _refusal(self, what: str, roles: frozenset[str]) -> NotPermitted:
        expected = " or ".join(sorted(roles))
        return NotPermitted(
            f"expected {what} from a peer whose HELLO says {expected}, found {self.role}: nothing was done",
            expected=sorted(roles),
            found=self.role,
        )


NO_RIGHTS: Final = Rights(PARTICIPANT, token_asked=True)
"""Before HELLO."""
