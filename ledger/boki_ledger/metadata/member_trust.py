"""How far a bookie's word "I never had that entry" goes: by what kind of bookie it is, and whether it is still the same. Pure.

Recovery ends a ledger because bookies deny an entry, so a wrong denial loses data. Two ways to be wrong:

- The bookie was formatted anew. One of ours is another bookie then, with another id. One of Apache's may come back under
  its old id; the evidence is that its cookie in the metadata store was made anew.
- The fence that came with the question was not durable yet. Ours answers only afterwards; one of Apache's answers a denial
  at once, and is believed only after a force (`fence_proof`).

| bookie | its cookie | its denials |
|---|---|---|
| ours (the cookie has our mark) | - | count |
| any other | is the one that the ledger's metadata remembers | count after a force |
| any other, not remembered (Apache's client made it a member) | is older than the ledger | count after a force |
| any other | made anew, gone, or of unknown age | never count: unknown |

What the metadata remembers is a custom value: one line `<when the cookie was made> <bookie>` per member.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Final, NamedTuple

from boki_common.bookkeeper.ledger_metadata import LedgerMetadata
from boki_common.ids import BookieId

REMEMBERED: Final = "boki.cookies"
"""Name of the custom value in a ledger's metadata."""


class Member(NamedTuple):
    """What the metadata store says about a bookie."""

    ours: bool
    made: int | None
    """When its cookie was made (`MetadataStore.created`); None if there is none, or the store does not know."""


class Trust(Enum):
    """See the table."""

    SURE = "sure"
    AFTER_FORCE = "after a force"
    NEVER = "never"


def trust(bookie: BookieId, member: Member, metadata: LedgerMetadata, *, ledger_made: int | None) -> Trust:
    """The last column of the table.

    `member`: what the store says now about the bookie, which is one of the ledger's last fragment. `ledger_made`: when the ledger's
    node was made, by the same count as `member.made`.
    """
    if member.ours:
        return Trust.SURE
    remembered = remembered_in(metadata).get(bookie)
    if member.made is None:
        return Trust.NEVER
    if remembered is not None:
        return Trust.AFTER_FORCE if remembered == member.made else Trust.NEVER
    return Trust.AFTER_FORCE if ledger_made is not None and member.made < ledger_made else Trust.NEVER


def joined(before: LedgerMetadata | None, after: LedgerMetadata) -> tuple[BookieId, ...]:
    """Bookies of the last fragment that were not in it before: those to be remembered."""
    known = before.ensembles[-1][1] if before is not None else ()
    return tuple(bookie for bookie in after.ensembles[-1][1] if bookie not in known)


def remember(metadata: LedgerMetadata, members: Mapping[BookieId, Member]) -> LedgerMetadata:
    """The metadata with the cookies of those members that are not ours; whatever it had of them before is replaced."""
    foreign = {bookie: member.made for bookie, member in members.items() if not member.ours}
    if not foreign:
        return metadata
    lines = {bookie: made for bookie, made in remembered_in(metadata).items() if bookie not in foreign}
    lines.update((bookie, made) for bookie, made in foreign.items() if made is not None)
    custom = {name: value for name, value in metadata.custom if name != REMEMBERED}
    if lines:
        custom[REMEMBERED] = _encode(lines)
    return replace(metadata, custom=tuple(sorted(custom.items())))


def remembered_in(metadata: LedgerMetadata) -> dict[BookieId, int]:
    """When the cookies of its members were made, as the metadata remembers it; lines that cannot be right are left out."""
    found: dict[BookieId, int] = {}
    for line in dict(metadata.custom).get(REMEMBERED, b"").decode(errors="replace").splitlines():
        made, _, bookie = line.partition(" ")
        if bookie and made.isascii() and made.isdigit():
            found[BookieId(bookie)] = int(made)
    return found


def _encode(lines: Mapping[BookieId, int]) -> bytes:
    return b"".join(f"{made} {bookie}\n".encode() for bookie, made in sorted(lines.items()))


def names(bookies: Iterable[BookieId]) -> str:
    """For messages: sorted, with commas."""
    return ", ".join(sorted(bookies))
