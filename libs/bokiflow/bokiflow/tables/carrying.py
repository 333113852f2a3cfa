"""The records of tables that are rewritten out of old terms: definitions of tables, and floors of their versions.

    async with Tables(log, port): ...                             # rewrites them, unless another process does
    async with Carrier(log, [TablesCarried(log), store.carried()], who="host-7"): ...

In both kinds of streams (`table/cat`, `table/floor`) only the newest record counts. It is appended again, which expects that no newer
record exists, and the older ones are trimmed. If the append loses, another process has rewritten or changed the state, and nothing is to
be done. A process that has the table open finds the new place at its next read (`Transaction`).

Records of rows are not rewritten, since the database has them: see `Tables.settle_old`.
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
"""Streams read in one round trip."""

log = get_logger(__name__)

Kind: TypeAlias = type[Made] | type[Collected]


class _Stream(NamedTuple):
    """A stream with a state of a table, and the kind of event that has the state."""

    tag: str
    table: str
    kind: Kind


class TablesCarried:
    """The states of all tables of a book, open in this process or not; implements `bokilib.retention.carrier.Carries`."""

    def __init__(self, opened: Log) -> None:
        self._log: Final = opened
        self._trimmer: Final = Trimmer(opened.book)
        self._streams: dict[_Stream, None] = {}

    @property
    def library(self) -> str:
        return "table"

    def collect(self, read: Read) -> int:
        """Note the streams that a record names; return the number of noted streams."""
        for event in PICKER.of(read.record.seqnum, read.envelope):
            if isinstance(event, Made):
                self._streams[_Stream(tags.table_catalog(event.id), event.id, Made)] = None
            elif isinstance(event, Collected):
                self._streams[_Stream(tags.table_floor(event.id), event.id, Collected)] = None
        return len(self._streams)

    async def carry(self, now_ms: int, fence: Expected, *, carry_ms: int) -> tuple[int, int]:
        """Rewrite the states of the noted streams that are older than `carry_ms`, and trim their older records.

        Returns:
            The number of rewritten states, and of states that cannot be read.
        """
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
        """Do nothing: tables have no other upkeep here."""

    async def _states(self, records: Sequence[tuple[_Stream, boki.Record]]) -> list[State]:
        """Return the states that can be read. A state that cannot be read keeps its own term and holds up no other one."""
        states: list[State] = []
        for stream, record in records:
            try:
                events = PICKER.of(record.seqnum, await self._log.open(record), stream.table)
            except BokiError as error:
                if error.retryable:
                    raise
                log.warning("definition of a table unreadable: its term is kept", table=stream.table, error=str(error))
                continue
            states += [State(stream.tag, record.seqnum, event) for event in events if isinstance(event, stream.kind)][
                -1:
            ]
        return states
