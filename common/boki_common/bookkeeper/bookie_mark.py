"""The mark of a bookie: what people decided about it, and how far its drain is.

    /boki/bookies/<bookie>    JSON, see `BookieMark`; a bookie without a node is active and takes writes

    | state    | the bookie                                                    | changed to                             |
    |----------|---------------------------------------------------------------|----------------------------------------|
    | active   | serves; takes no writes while `read_only`                      | draining, by a person                  |
    | draining | refuses all adds, those of recovery and repair too; is emptied | active, by a person; retired, by a controller |
    | retired  | stops, and never starts again on its directory                 | nothing                                |

Every change is a compare-and-swap at the version that was read (`bookie_marks`), with a token of its own, so a lost answer is
settled. While it drains, the bookie notes in its mark that it refuses, once it does, and that it holds nothing, once that is so. A
controller retires it at exactly the version that says so: after a cancellation in between it cannot. The rules are
explored in `ledger/tests/models/test_drain_model.py`.

A bookie reads its mark after it wrote its cookie and before it serves: on that session the read is as new as the write, so a bookie
that noted that it refuses never forgets it. The node of a retired bookie stays, since an id is never used again.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import msgspec

from boki_common.errors import InvalidArgument
from boki_common.json_node import NO_NODE, JsonNode

MARKS: Final = "/boki/bookies"
LEFT_NAMED: Final = 100

ACTIVE: Final = "active"
DRAINING: Final = "draining"
RETIRED: Final = "retired"


class BookieMark(JsonNode, frozen=True, kw_only=True):
    """See the module. The fields from `refuses` on are the bookie's own, and are only set while it drains."""

    state: Literal["active", "draining", "retired"] = ACTIVE
    read_only: bool = False
    """A person wants no writes there."""
    refuses: bool = False
    """It refuses all adds, and does so until the mark says something else."""
    empty: bool = False
    """While it refuses it came to hold no entry."""
    ledgers: int = 0
    """Ledgers of which it holds entries still."""
    left: tuple[int, ...] = ()
    """The first of them, at most `LEFT_NAMED`."""
    held_for_good: int = 0
    """Those of them that were salvaged: their holds may have been forgotten, so they are never emptied."""
    in_limbo: bool = False
    """It was salvaged and not repaired yet: nothing is emptied before that."""


class SeenMark(NamedTuple):
    """A mark and the version of its node; `NO_NODE` if there is none."""

    mark: BookieMark
    version: int


UNMARKED: Final = SeenMark(BookieMark(), NO_NODE)


def mark_path(bookie_id: str) -> str:
    return f"{MARKS}/{bookie_id}"


def draining(mark: BookieMark, bookie_id: str) -> BookieMark:
    """Return the mark of a bookie that is to be drained; one that drains already stays as it is. Raises InvalidArgument: it is retired."""
    if mark.state == RETIRED:
        raise InvalidArgument(f"bookie {bookie_id} is retired already: nothing is left to drain", found=mark.state)
    return mark if mark.state == DRAINING else BookieMark(state=DRAINING, read_only=mark.read_only)


def cancelled(mark: BookieMark, bookie_id: str) -> BookieMark:
    """Return the mark of a bookie whose drain is cancelled. Raises InvalidArgument: it does not drain, or is retired."""
    if mark.state != DRAINING:
        raise InvalidArgument(
            f"expected a bookie that drains, found {bookie_id}, which is {mark.state}: there is no drain to cancel",
            found=mark.state,
        )
    return BookieMark(read_only=mark.read_only)


def retired(mark: BookieMark) -> BookieMark:
    """Return the mark of a drained bookie that is retired; it keeps what the bookie noted last."""
    assert mark.state == DRAINING, mark
    return msgspec.structs.replace(mark, state=RETIRED)


def kept_read_only(mark: BookieMark, read_only: bool) -> BookieMark:
    """Return the mark of a bookie that a person wants, or no longer wants, read-only."""
    return msgspec.structs.replace(mark, read_only=read_only)
