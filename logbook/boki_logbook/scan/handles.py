"""The scans that an engine serves: a page a request, two at a time, and none that is not asked for (opcode SCAN).

Rules:
- What a scan shows is of the moment it began (`pages`); the engine goes on meanwhile.
- A scan belongs to the connection that began it: to others its handle says nothing, and it ends with the connection. A connection
  has one scan at a time: beginning another ends the one before, whose caller gave up.
- At most `HANDLES` at once: they keep columns alive that merges replace. A caller that finds none free asks again later.
- A scan that is not asked for within `IDLE_S` is forgotten; so are all when the engine begins anew. A caller that asks for a forgotten
  one is told to plan again.
- A request makes pages until one says something, or a turn's time is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from boki_common.errors import Overloaded
from boki_logbook.scan.facts import ScanRange
from boki_logbook.scan.messages import VERSION, ScanAnswer, ScanRequest, decode_request, encode_answer
from boki_logbook.scan.pages import Captured, Page, pages_of

HANDLES: Final = 2
IDLE_S: Final = 30.0
TURN_S: Final = 0.001
"""After so long a page without rows is sent, too."""

Capture = Callable[[ScanRange, str], Captured]


@dataclass(slots=True, eq=False)
class _Scan:
    owner: object
    pages: Iterator[Page]
    until: asyncio.TimerHandle


class ScanHandles:
    """See the module. `capture`: takes what pages are made of, or raises why it cannot."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self._loop = asyncio.get_running_loop()
        self._scans: dict[int, _Scan] = {}
        self._next = 1

    @property
    def open(self) -> int:
        """Scans that go on."""
        return len(self._scans)

    def answer(self, owner: object, body: memoryview) -> bytes:
        """Return the answer to a request of a connection. Raises ProtocolError: it cannot be right; Overloaded: too many scans, or the
        connection has no such scan any more: begin another one."""
        request = decode_request(body)
        if not request.handle:
            return self._begin(owner, request)
        scan = self._scans.get(request.handle)
        if scan is None or scan.owner is not owner:
            raise Overloaded(
                f"scan {request.handle} was not asked for within {IDLE_S:g} s, or the engine began anew: plan again"
            )
        if request.close:
            self._end(request.handle)
            return encode_answer(ScanAnswer(VERSION, request.handle, Page(last=True)))
        return self._page(request.handle, scan)

    def left(self, owner: object) -> None:
        """End the scan of a connection that ended. Idempotent."""
        for handle in [handle for handle, scan in self._scans.items() if scan.owner is owner]:
            self._end(handle)

    def _begin(self, owner: object, request: ScanRequest) -> bytes:
        self.left(owner)
        if len(self._scans) >= HANDLES:
            raise Overloaded(
                f"{HANDLES} scans go on at this engine: ask again, or another engine", found=len(self._scans)
            )
        pages = pages_of(self._capture(request.asked, request.mode))
        handle, self._next = self._next, self._next + 1
        scan = self._scans[handle] = _Scan(owner, pages, self._loop.call_later(IDLE_S, self._end, handle))
        return self._page(handle, scan)

    def _page(self, handle: int, scan: _Scan) -> bytes:
        scan.until.cancel()
        scan.until = self._loop.call_later(IDLE_S, self._end, handle)
        began, page = self._loop.time(), _NOTHING
        try:
            for page in scan.pages:
                if page != _NOTHING or self._loop.time() - began >= TURN_S:
                    break
        except BaseException:
            self._end(handle)
            raise
        if page.last:
            self._end(handle)
        return encode_answer(ScanAnswer(VERSION, handle, page))

    def _end(self, handle: int) -> None:
        scan = self._scans.pop(handle, None)
        if scan is not None:
            scan.until.cancel()

    def close(self) -> None:
        """Forgets all. Idempotent."""
        for handle in list(self._scans):
            self._end(handle)


_NOTHING: Final = Page()
