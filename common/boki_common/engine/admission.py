"""Whether an engine takes new appends: not while too few bookies take writes because the disks of others are full. Pure.

An engine that cannot write lets what it has wait, because its outcome is not known before it is decided. What is not numbered yet
is better refused at once, by name: nobody has to wait for a time-out to learn that a disk is full. It travels as a row of ANSWERS
about no writer (`engine_protocol`), which SDKs of earlier versions pass over; they wait, as they did.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from boki_common.engine.answers import AnswerRow
from boki_common.engine.engine_protocol import WRITER_BYTES
from boki_common.errors import DiskFull

NO_WRITER: Final = bytes(WRITER_BYTES)
"""Neither is a session writer's id, which says when it was born, nor the hash of a name."""


class Admission(NamedTuple):
    """How many bookies take writes.

    Attributes:
        writable: bookies that do.
        read_only: bookies that are up, and take none: nearly always because their disks are full.
        needed: as many have to acknowledge an entry.
    """

    writable: int
    read_only: int
    needed: int

    @property
    def taken(self) -> bool:
        """Whether appends are taken. When bookies are away, they are: nobody knows for how long."""
        return self.writable >= self.needed or self.writable + self.read_only < self.needed

    def row(self) -> AnswerRow:
        """As it travels."""
        return AnswerRow(self.read_only, NO_WRITER, self.writable, self.needed, 0, 1, 0)

    def error(self) -> DiskFull:
        """What a new append is refused with."""
        return DiskFull(
            f"appends are not taken now: {self.needed} bookies have to take a record, {self.writable} do, and {self.read_only} are up "
            "and read-only, most likely because their disks are full; nothing was sent. Free space on them or start another bookie: "
            "it goes on by itself",
            expected=self.needed,
            found=self.writable,
            read_only=self.read_only,
        )

    def sentence(self) -> str:
        """Name the error and say what it says, for pages and checks."""
        return f"{DiskFull.__name__}: {self.error()}"


TAKEN: Final = Admission(0, 0, 0)
"""Nothing is known against it."""


def admission_of(row: AnswerRow) -> Admission | None:
    """What a row says of the engine; None for one that is about a writer."""
    return Admission(row.first, row.book, row.first_seqnum) if row.writer == NO_WRITER else None
