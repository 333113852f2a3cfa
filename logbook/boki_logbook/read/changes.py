"""What SDKs change besides appending: trims, which are ordered as commands of the log, and aux data, which this engine keeps for itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from boki_common.engine.engine_protocol import encode_position
from boki_common.ids import ALL_RECORDS
from boki_common.runtime.ports import Buffer
from boki_logbook.read.cache import BatchCache
from boki_logbook.read.serving import Serving
from boki_logbook.read.waiting import Waiting
from boki_logbook.state.state import DecisionState
from boki_metalog.entries.metalog_entry import Trim


class Changes:
    """See the module."""

    def __init__(
        self, serving: Serving, waiting: Waiting, state: Callable[[], DecisionState], cache: BatchCache
    ) -> None:
        """`state`: of now, for an engine may begin anew from a snapshot."""
        self._serving = serving
        self._waiting = waiting
        self._state = state
        self._cache = cache

    async def trim(self, book: int, pairs: Sequence[tuple[int, int]], *, forget: bool) -> list[Buffer]:
        """Has a trim ordered, and waits until it is applied here. The command says from what age on it forgets (ADR 23). Raises
        TermOver, NetworkError, Overloaded: it may have been ordered; it may be repeated."""
        before_ms = self._serving.forget_before_ms(book) if forget else 0
        command = Trim(book, tuple(pairs), before_ms > 0, before_ms or None)
        log, position = await self._serving.order(book, command)
        await self._waiting.reach_with_room({log: position}, book)
        return encode_position(*self._serving.view_of(book))

    def set_aux(self, book: int, seqnum: int, data: bytes) -> bool:
        """Keeps aux data of a record that is there, as long as there is room."""
        if not self._state().index.ascending(book, ALL_RECORDS, seqnum, seqnum + 1, 1):
            return False
        return self._cache.put_aux(seqnum, data)
