"""What of tables is carried out of old terms: what they are, and which versions of their rows are gone.

    async with Tables(log, port): ...                                          # carries by itself, when nobody else does
    async with Carrier(log, [TablesCarried(log), store.carried()], who="host-7"): ...

Both are states whose newest record counts (`table/cat`, `table/floor`): that record is appended anew, which expects that nothing came
since, and then what was before it is trimmed. Who has the table open learns of the new place when he reads next (`Transaction`). Who comes
too late carries nothing: somebody else did, or changed it.

Records of rows need not stay, since the database has them: see `Tables.settle_old`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

import boki
from boki_common.errors import BokiError
from boki_common.logs import get_logger
from bokiflow.tables.table_events import PICKER, Collected, Made
from bokilib.append.log import Log, Read
from bokilib.records import tags
from bokilib.records.conflict_rules import Expected
from bokilib.retention.rewritten_states import State, append_states
from bokilib.retention.trimmer import Trimmer

AT_ONCE: Final = 200
"""Streams that are read in one round trip."""

log = get_logger(__name__)

Kind: TypeAlias = type[Made] | type[Collected]


class _Stream(NamedTuple):
    """One that has a state of a table."""

    tag: str
    table: str
    kind: Kind


class TablesCarried:
    """See the module: of all tables of a book, open here or not. Implements `bokilib.retention.carrier.Carries`."""

    def __init__(self, opened: Log) -> None:
        self._log: Final = opened
        self._trimmer: Final = Trimmer(opened.book)
        self._streams: dict[_Stream, None] = {}

    @property
    def library(self) -> str:
        return "table"

    def collect(self, read: Read) -> int:
        """See `Carries`."""
        for event in PICKER.of(read.record.seqnum, read.envelope):
            if isinstance(event, Made):
                self._streams[_Stream(tags.table_catalog(event.id), event.id, Made)] = None
            elif isinstance(event, Collected):
                self._streams[_Stream(tags.table_floor(event.id), event.id, Collected)] = None
        return len(self._streams)

    async def carry(self, now_ms: int, fence: Expected, *, carry_ms: int) -> tuple[int, int]:
        """See `Carries`."""
        streams, self._streams = list(self._streams), {}
        carried = unreadable = 0
        for at in range(0, len(streams), AT_ONCE):
            some = streams[at : at + AT_ONCE]
            newest = await self._log.book.read_prev_many([(stream.tag, None) for stream in some])
            records = [(stream, record) for stream, record in zip(some, newest, strict=True) if record is not None]
            old = [(stream, record) for stream, record in records if now_ms - record.time_ms >= carry_ms]
            states = await self._states(old)
            made = await append_states(self._log, states, fence)
            carried += len(made)
            unreadable += len(old) - len(states)
            for stream, record in records:
                self._trimmer.add(stream.tag, made.get(stream.tag, record.seqnum))
        await self._trimmer.flush()
        return carried, unreadable

    async def tend(self) -> None:
        """See `Carries`: nothing else is due."""

    async def _states(self, records: Sequence[tuple[_Stream, boki.Record]]) -> list[State]:
        """Those that can be read: one that cannot keeps its own term, and no other's."""
        states: list[State] = []
        for stream, record in records:
            try:
                events = PICKER.of(record.seqnum, await self._log.open(record), stream.table)
            except BokiError as error:
                if error.retryable:
                    raise
                log.warning("what a table is cannot be read", table=stream.table, error=str(error))
                continue
            states += [State(stream.tag, record.seqnum, event) for event in events if isinstance(event, stream.kind)][
                -1:
            ]
        return states
