"""The administration page of a bookie, over HTTP: health, settings, ledgers, garbage collection, read-only mode, metrics.

| path | answer |
|---|---|
| GET /health | 200 while it serves and takes writes; else 503 with the reasons |
| GET /info | version, bookie id, address, disk space, uptime |
| GET /config | the settings in effect |
| GET /ledgers?after=ID&limit=N | what it holds, in order of ledgers; `next` is the `after` of the following page |
| GET /ledgers/ID | one ledger, with the ranges of its entries |
| GET, POST /gc | the state of garbage collection; a request for one, `{"major": true}` for all entry logs |
| GET, PUT, DELETE /state/readonly | whether it is read-only and why; an administrator makes it so, or takes that back |
| GET /metrics | Prometheus' text format |

It is off unless `admin_port` names a port (0: any), binds `admin_host`, by default this machine alone, and asks for
the cluster token if there is one. An administrator's read-only mode is kept in the metadata store and outlives restarts; it
is refused while that store is away.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any, Final, Protocol

from aiohttp import web

from boki_bookie.entries import ledger_report
from boki_bookie.serve.health import Reason
from boki_bookie.settings import BookieSettings
from boki_bookie.storage.storage import Storage
from boki_bookie.storage.storage_router import Store
from boki_common.bookkeeper.layout import LEDGER_ID_MAX
from boki_common.cluster_token import ClusterToken
from boki_common.errors import InvalidArgument
from boki_common.http.http_page import HttpPage, answer, body_of, number_of
from boki_common.http.metrics_page import add_metrics
from boki_common.ids import BookieId
from boki_common.metrics import Metrics
from boki_common.net.connection import Address
from boki_common.version import VERSION

LEDGERS_A_PAGE: Final = 100
LEDGERS_A_PAGE_LIMIT: Final = 1_000


class Administered(Protocol):
    """What the page needs of the bookie."""

    bookie_id: BookieId
    address: Address

    @property
    def storage(self) -> Store: ...

    @property
    def kept_by(self) -> list[str]:
        """Why it takes no writes although its disk has room: "administrator", "drain"."""

    async def reasons(self) -> Sequence[Reason]:
        """Why it does not serve or does not take writes; none means healthy."""

    async def free_bytes(self) -> int: ...

    async def keep_read_only(self, read_only: bool) -> None:
        """An administrator's word, which outlives restarts. Raises MetadataError."""


class BookieAdmin:
    """The page of one bookie, once it listens."""

    def __init__(
        self,
        bookie: Administered,
        settings: BookieSettings,
        metrics: Metrics,
        *,
        storages: Sequence[Storage],
        allowed_hosts: Sequence[str],
        token: ClusterToken,
    ) -> None:
        """`storages` are those of the directories, in their order, and `allowed_hosts` are names that Host may have beside the
        usual ones (`host_rules`); `token` is to be shown."""
        self._token = token
        self._storages = storages
        self._bookie = bookie
        self._settings = settings
        self._started = asyncio.get_running_loop().time()
        self._page = page = HttpPage("admin page", setting="admin_port", allowed_hosts=allowed_hosts, token=token)
        page.get("/health", "Whether it serves and takes writes, and why not.", self._health)
        page.get("/info", "Version, bookie id, address, disk space, uptime.", self._info)
        page.get("/config", "The settings in effect.", self._config)
        page.get("/ledgers", "What it holds: ?after=ID&limit=N.", self._ledgers)
        page.get("/ledgers/{ledger_id}", "One ledger.", self._ledger)
        page.get("/gc", "The state of garbage collection.", self._gc)
        page.add("POST", "/gc", 'Asks for a collection; {"major": true} compacts more.', self._request_gc)
        page.get("/state/readonly", "Whether it is read-only, and why.", self._read_only)
        page.add("PUT", "/state/readonly", "Take no writes until this is deleted.", self._make_read_only)
        page.add("DELETE", "/state/readonly", "Take writes again, if the disk has space.", self._make_writable)
        add_metrics(page, metrics)

    async def listen(self) -> None:
        """Where the settings say. Raises SettingsError: cannot listen there."""
        await self._page.listen(self._settings.admin_host, self._settings.admin_port)

    @property
    def address(self) -> Address:
        """Where it really listens."""
        return Address(self._settings.admin_host, self._page.port)

    async def close(self) -> None:
        """Stops listening. Idempotent."""
        await self._page.close()

    # -- the bookie

    async def _health(self, _request: web.Request) -> web.Response:
        reasons = [reason._asdict() for reason in await self._bookie.reasons()]
        return answer({"status": "failing", "reasons": reasons}, 503) if reasons else answer({"status": "ok"})

    async def _info(self, _request: web.Request) -> web.Response:
        free = await self._bookie.free_bytes()
        return answer(
            {
                "version": VERSION,
                "bookie_id": self._bookie.bookie_id,
                "asks_for_token": self._token.asks,
                "address": str(self._bookie.address),
                "ledgers": self._bookie.storage.ledger_count,
                "disk_free_bytes": free,
                "disk_total_bytes": free + self._bookie.storage.file_bytes,
                "uptime_s": round(asyncio.get_running_loop().time() - self._started, 3),
            }
        )

    async def _config(self, _request: web.Request) -> web.Response:
        return answer(dataclasses.asdict(self._settings))

    async def _read_only(self, _request: web.Request) -> web.Response:
        """`by` an administrator, a drain or the disk; all may be."""
        bookie = self._bookie
        by = bookie.kept_by
        if bookie.storage.read_only and any(reason.reason == "disk_full" for reason in await bookie.reasons()):
            by.append("disk")
        return answer({"read_only": bookie.storage.read_only, "by": by})

    async def _make_read_only(self, request: web.Request) -> web.Response:
        await self._bookie.keep_read_only(True)
        return await self._read_only(request)

    async def _make_writable(self, request: web.Request) -> web.Response:
        await self._bookie.keep_read_only(False)
        return await self._read_only(request)

    # -- ledgers

    async def _ledgers(self, request: web.Request) -> web.Response:
        after = number_of(request, "after", -1, minimum=-1, maximum=LEDGER_ID_MAX)
        limit = number_of(request, "limit", LEDGERS_A_PAGE, minimum=1, maximum=LEDGERS_A_PAGE_LIMIT)
        storage = self._bookie.storage
        rows: list[dict[str, Any]] = []
        ids = ledger_report.next_ids(storage.ledger_ids, after=after, limit=limit)
        for ledger_id in ids:
            one = storage.of(ledger_id)
            ledger = one.ledger(ledger_id)
            if ledger is not None:
                rows.append(ledger_report.summary(ledger, limbo=one.doubts(ledger_id)))
            await asyncio.sleep(0)  # a large ledger takes a millisecond: the bookie goes on in between
        return answer({"ledgers": rows, "total": storage.ledger_count, "next": ids[-1] if len(ids) == limit else None})

    async def _ledger(self, request: web.Request) -> web.Response:
        text = request.match_info["ledger_id"]
        if not text.isascii() or not text.isdigit() or len(text) > 19:
            raise InvalidArgument(f"expected the number of a ledger, found {text!r}; /ledgers lists them")
        ledger_id = int(text)
        storage = self._bookie.storage.of(ledger_id)
        ledger = storage.ledger(ledger_id)
        if ledger is None:
            doubt = "; it may have lost it: it is in limbo about this ledger" if storage.doubts(ledger_id) else ""
            return answer({"error": f"this bookie knows no ledger {ledger_id}{doubt}; /ledgers lists them"}, 404)
        return answer(ledger_report.detail(ledger, limbo=storage.doubts(ledger_id)))

    # -- garbage collection

    async def _gc(self, _request: web.Request) -> web.Response:
        return answer({"directories": [storage.gc_state() for storage in self._storages]})

    async def _request_gc(self, request: web.Request) -> web.Response:
        body = await body_of(request)
        major = body.pop("major", False)
        if body or not isinstance(major, bool):
            raise InvalidArgument('expected {"major": true}, {"major": false} or nothing, found something else')
        for storage in self._storages:
            storage.request_gc(major=major)
        return answer({"requested": "major" if major else "minor"}, 202)
