"""What waits to be written to the journal: groups of records, the last of which can grow, with bounds. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from boki_bookie.formats.journal_format import NO_SUMS, RECORD_HEADER_BYTES, SEGMENT_OVERHEAD_BYTES
from boki_bookie.settings import BookieSettings
from boki_common.errors import BokiError, InvalidArgument, Overloaded
from boki_common.runtime.ports import Buffer

_KINDS: Final = tuple(bytes((kind,)) for kind in range(256))

Done = Callable[[BokiError | None], None]


class Group:
    """Records that are durable together; columns, because there may be thousands a millisecond."""

    __slots__ = ("bodies", "count", "done", "kinds", "record_bytes", "sums")

    def __init__(self) -> None:
        self.kinds = bytearray()
        self.bodies: list[Buffer] = []
        self.count = 0
        self.record_bytes = 0
        """Bodies with their record headers."""
        self.done: list[Done] = []
        self.sums = NO_SUMS
        """crc32c of bodies, by their place in the group, where it is known."""


class GroupQueue:
    """See the module. Invariant: `_records` and `_bytes` count what was added and is not `written` yet."""

    def __init__(self, settings: BookieSettings) -> None:
        self.waiting: deque[Group] = deque()
        """Groups that are not on their way to the disk, oldest first."""
        self._record_bytes_limit = settings.journal_segment_bytes - SEGMENT_OVERHEAD_BYTES
        self._group_bytes_limit = min(settings.journal_group_bytes, self._record_bytes_limit)
        self._bytes_limit = settings.journal_queue_bytes
        self._records_limit = settings.journal_queue_records
        self._bytes = 0
        self._records = 0

    def add(self, kind: int, bodies: Sequence[Buffer], body_bytes: int, sums: Sequence[int]) -> bool:
        """Takes records of one kind, all or none; False where they have to go one by one, or not at all."""
        count = len(bodies)
        size = body_bytes + RECORD_HEADER_BYTES * count
        if (
            size > (self._record_bytes_limit if count == 1 else self._group_bytes_limit)
            or self._bytes + size > self._bytes_limit
            or self._records + count > self._records_limit
        ):
            return False
        waiting = self.waiting
        if not waiting or waiting[-1].record_bytes + size > self._group_bytes_limit:
            waiting.append(Group())
        group = waiting[-1]
        if sums:
            group.sums = {**group.sums, **dict(enumerate(sums, group.count))}
        group.kinds += _KINDS[kind] * count
        group.bodies += bodies
        group.count += count
        group.record_bytes += size
        self._bytes += size
        self._records += count
        return True

    def refusal(self, body: Buffer) -> BokiError:
        """Why `add` does not take one body."""
        if len(body) + RECORD_HEADER_BYTES > self._record_bytes_limit:
            return InvalidArgument(
                f"expected an entry of at most {self._record_bytes_limit - RECORD_HEADER_BYTES} bytes, found {len(body)}; "
                "journal_segment_bytes bounds it"
            )
        return Overloaded(f"{self._bytes} bytes in {self._records} records wait for the journal: try again later")

    def written(self, group: Group) -> None:
        """There is room for so much again."""
        self._bytes -= group.record_bytes
        self._records -= group.count
