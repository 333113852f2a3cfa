"""What the numbers of a writer need of what is undecided, whatever it is (`_ticket`). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, Protocol

import crc32c as _crc32c

from boki._arguments import NO_EXPECTATIONS, Content, EncodedTags, Expectations
from boki_common.errors import BokiError
from boki_common.records.batch_builder import BatchBuilder

_PAIR: Final = Struct("<QQ")


def checksum(tags: EncodedTags, data: bytes, expectations: Expectations = NO_EXPECTATIONS) -> int:
    """crc32c of a record: its tags with their names, its data, its expectations."""
    crc = _crc32c.crc32c(tags.names, _crc32c.crc32c(tags.packed))
    crc = _crc32c.crc32c(data, crc)
    return _crc32c.crc32c(b"".join(_PAIR.pack(*pair) for pair in expectations.pairs), crc)


class Pending(Protocol):
    """What is undecided: consecutive numbers, from `first` on."""

    @property
    def first(self) -> int: ...

    @property
    def next(self) -> Pending | None:
        """What has the numbers behind these."""

    @property
    def count(self) -> int:
        """How many numbers."""

    @property
    def size(self) -> int:
        """Bytes it takes in a frame, roughly."""

    @property
    def decided(self) -> bool:
        """Whether every number has its verdict."""

    @property
    def partly_decided(self) -> bool:
        """Whether some numbers have, and others have not."""

    @property
    def expectations(self) -> Expectations: ...

    def numbered(self, first: int) -> None:
        """Its numbers begin here."""

    def linked(self, after: Pending | None) -> None:
        """This has the numbers behind."""

    def encode(self, builder: BatchBuilder) -> None:
        """Adds the records to the open run of a batch."""

    def contents(self) -> Sequence[Content]:
        """What each record says."""

    def checksums(self) -> Iterable[int]:
        """Of each record: distinguishes two records under one number of a named writer."""

    def committed(self, first: int, end: int, first_seqnum: int) -> None:
        """Numbers first … end-1 have the seqnums first_seqnum …; some may lie outside of this item."""

    def was_there(self, first: int, end: int, first_seqnum: int) -> None:
        """As `committed`, of numbers that the log had before they were sent."""

    def failed(self, first: int, end: int, error: BokiError) -> None:
        """Numbers first … end-1 joined nothing, or will not be asked for any more."""
