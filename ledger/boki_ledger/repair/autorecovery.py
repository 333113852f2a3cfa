"""What Apache BookKeeper's AutoRecovery does in the same cluster, as its nodes in the metadata store show it. It is only read.

    /ledgers/underreplication/auditorelection/V_…          ephemeral: candidates for its auditor; any of them means that it runs
                              locks/urL0000000007          ephemeral: a worker copies the ledger
                              ledgers/0000/…/urL0000000007 a ledger that misses copies: the id's 64 bits as four groups of four hex digits
                              disable                      there while somebody has switched it off

Its workers give no holds, and fence ledgers that are open: while it runs, controllers of ours only report, and no drain begins.
Marks are shown and not worked on. They say what its auditor saw; ours reads the metadata of all ledgers itself.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from boki_common.bookkeeper import layout
from boki_common.metadata.store import MetadataStore, names_below

UNDERREPLICATION: Final = f"{layout.LEDGERS}/underreplication"
APACHES_ELECTION: Final = f"{UNDERREPLICATION}/auditorelection"
APACHES_LOCKS: Final = f"{UNDERREPLICATION}/locks"
APACHES_MARKS: Final = f"{UNDERREPLICATION}/ledgers"
APACHES_SWITCH: Final = f"{UNDERREPLICATION}/disable"
MARKED_LIMIT: Final = 1_000
"""Marks that are looked for; there may be one for each ledger."""
LEVELS: Final = 4

_MARK: Final = re.compile(r"urL([0-9]{10,19})")


class AutoRecovery(NamedTuple):
    """See the module."""

    elected: bool = False
    disabled: bool = False
    locked: tuple[int, ...] = ()
    """Ledgers that its workers copy now."""
    marked: tuple[int, ...] = ()
    """Ledgers that its auditor found to miss copies, `MARKED_LIMIT` at most."""

    @property
    def runs(self) -> str:
        """What of it may still copy, for people; empty, if nothing."""
        if self.elected:
            return "its auditor is elected"
        return f"it has {len(self.locked)} ledgers locked" if self.locked else ""

    def describe(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "elected": self.elected,
            "disabled": self.disabled,
            "locked_ledgers": list(self.locked[:100]),
            "marked_ledgers": len(self.marked),
            "marked": list(self.marked[:100]),
        }


async def read_autorecovery(store: MetadataStore, *, marks: bool = True) -> AutoRecovery:
    """Return what its nodes show now. `marks`: look for marks too, a call for each folder of them. Raises MetadataUnavailable."""
    marked: list[int] = []
    if marks:
        await _collect_marks(store, APACHES_MARKS, LEVELS, marked)
    return AutoRecovery(
        bool(await names_below(store, APACHES_ELECTION)),
        await store.exists(APACHES_SWITCH),
        tuple(_ledgers_of(await names_below(store, APACHES_LOCKS))),
        tuple(sorted(marked)),
    )


async def _collect_marks(store: MetadataStore, folder: str, depth: int, found: list[int]) -> None:
    """Add the ledgers that are marked below a folder, whose leaves are `depth` folders further down."""
    names = await names_below(store, folder)
    if not depth:
        found += _ledgers_of(names)[: MARKED_LIMIT - len(found)]
        return
    for name in names:
        if len(found) < MARKED_LIMIT:
            await _collect_marks(store, f"{folder}/{name}", depth - 1, found)


def _ledgers_of(names: list[str]) -> list[int]:
    matches = map(_MARK.fullmatch, names)
    return [int(match[1]) for match in matches if match is not None]
