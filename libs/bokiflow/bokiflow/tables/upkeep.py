"""Retention of tables: bring the database up to date with the log, so that the log can trim the changes of rows.

Each process with entered tables checks from time to time whether the log has changes of rows that are as old as a term, and settles these
tables. One process at a time also rewrites the definitions of tables out of old terms and the floors of their versions
(`TablesCarried`):

    async with Tables(log, port): ...                             # rewrites them, unless another process does
    async with Carrier(log, [TablesCarried(log), store.carried()], who="host-7"): ...

In both kinds of streams (`table/cat`, `table/floor`) only the newest record counts. It is appended again, which expects that no newer
record exists, and the older ones are trimmed. If the append loses, another process has rewritten or changed the state, and nothing is to
be done. A process that has the table open finds the new place at its next read (`Transaction`).

Records of rows are not rewritten, since the database has them: see `Tables.settle_old`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import boki
from boki_common.errors import BokiError
from boki_common.logs import get_logger
from bokiflow.tables.schema import PICKER, Collected, Made, RowKey, TableRow, Written
from bokilib.append.log import Log, Read
from bokilib.ports import BookPort
from bokilib.records import tags
from bokilib.records.conflict_rules import Expected
from bokilib.retention.carrier import Carrier
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


ROWS_AT_ONCE: Final = 100


class Settled(NamedTuple):
    """The result of settling a table.

    Attributes:
        rows: rows with changes in the log; in mode `lwt`, expired outcomes of operations.
        behind: rows of which the database lacked a change.
    """

    rows: int
    behind: int


async def changed(opened: Log, table: str) -> tuple[tuple[str, int], dict[RowKey, int]]:
    """Read the stream of a table.

    Returns:
        The stream with the position up to which it was read, and the newest record of each row in it.
    """
    tag = tags.table_rows(table)
    position = await opened.book.now(consistency="linearizable")
    found: dict[RowKey, int] = {}
    async for item in opened.book.read(tag, start=1, stop=position + 1):
        if isinstance(item, boki.Gap):
            continue  # trimmed, since a process has settled the table up to there
        for event in PICKER.of(item.seqnum, await opened.open(item), table):
            if isinstance(event, Written):
                found[RowKey(table, event.key)] = item.seqnum
    return (tag, position), found


def behind(stored: Iterable[TableRow], newest: Mapping[RowKey, int]) -> int:
    """Return the number of rows whose stored version is older than their newest record."""
    return sum(row.version < newest[row.key] for row in stored)


async def is_old(opened: Log, table: str, carry_ms: int) -> bool:
    """Return whether the oldest change of a row in the log is `carry_ms` older than the newest record of the book."""
    newest = await opened.book.read_prev(consistency="linearizable")
    if newest is not None:
        async for item in opened.book.read(tags.table_rows(table), start=1, stop=newest.seqnum + 1):
            if isinstance(item, boki.Record):
                return newest.time_ms - item.time_ms >= carry_ms
    return False


async def tried(table: str, settling: Awaitable[object]) -> bool:
    """Settle a table, and return whether that succeeded; an error is logged, and the next round tries again."""
    try:
        await settling
    except BokiError as error:
        log.warning("table not settled: its terms are kept", table=table, error=str(error))
        return False
    return True


async def keep(opened: Log, settle_old: Callable[[], Awaitable[object]], *, every_s: float, carry_ms: int) -> None:
    """Settle old tables and rewrite definitions every `every_s`, until cancelled; the first round is after `every_s`."""
    await asyncio.sleep(every_s)
    async with Carrier(
        opened, [TablesCarried(opened)], who=f"tables of {opened.by}", every_s=every_s, carry_ms=carry_ms
    ):
        while True:
            try:
                await settle_old()
            except BokiError as error:
                log.warning("round of settling tables failed: it is repeated later", error=str(error))
            await asyncio.sleep(every_s)


async def trim(book: BookPort, stream: tuple[str, int], rows: dict[RowKey, int]) -> None:
    """Trim the changes that the database has: the streams of these rows and that of their table.

    The log remembers up to where a stream is trimmed, so a row that is restored to an older version is recognised.
    """
    trimmer = Trimmer(book)
    for key, seqnum in rows.items():
        trimmer.add(tags.table_row(*key), seqnum + 1)
    await trimmer.flush()
    trimmer.add(stream[0], stream[1] + 1)
    await trimmer.flush()
