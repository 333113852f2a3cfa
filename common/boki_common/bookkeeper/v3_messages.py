"""The requests and responses of BookKeeper's v3 protocol, as values (`v3` has their bytes). Pure."""

from __future__ import annotations

from typing import NamedTuple

from boki_common.bookkeeper import auth
from boki_common.bookkeeper.status import V2Status
from boki_common.runtime.ports import Buffer


class AddRequest(NamedTuple):
    txn_id: int
    priority: int | None
    ledger_id: int
    entry_id: int
    master_key: bytes
    body: memoryview
    recovery: bool
    deferred_sync: bool


class ReadRequest(NamedTuple):
    """A read; it fences when there is a `master_key`, and may wait for a LAC above `previous_lac` when `waits`."""

    txn_id: int
    priority: int | None
    ledger_id: int
    entry_id: int
    master_key: bytes | None
    waits: bool
    previous_lac: int
    timeout_ms: int


class WriteLacRequest(NamedTuple):
    txn_id: int
    priority: int | None
    ledger_id: int
    lac: int
    master_key: bytes
    body: memoryview


class ReadLacRequest(NamedTuple):
    txn_id: int
    priority: int | None
    ledger_id: int


class ForceRequest(NamedTuple):
    txn_id: int
    priority: int | None
    ledger_id: int


class ListEntriesRequest(NamedTuple):
    txn_id: int
    priority: int | None
    ledger_id: int


class BookieInfoRequest(NamedTuple):
    txn_id: int
    priority: int | None
    wanted: int


class AuthRequest(NamedTuple):
    """A step of a handshake."""

    txn_id: int
    priority: int | None
    message: auth.AuthMessage


class UnknownRequest(NamedTuple):
    """A request whose version, operation or flag is not served; `status` is its answer."""

    txn_id: int
    operation: int
    status: V2Status


class AddResponse(NamedTuple):
    txn_id: int
    status: V2Status
    ledger_id: int
    entry_id: int


class ReadResponse(NamedTuple):
    """`entry_id` as asked, or the entry that a long poll brings; `lac_time_ms` is when the LAC advanced."""

    txn_id: int
    status: V2Status
    ledger_id: int
    entry_id: int
    body: Buffer | None = None
    lac: int | None = None
    lac_time_ms: int | None = None


class WriteLacResponse(NamedTuple):
    txn_id: int
    status: V2Status
    ledger_id: int


class ReadLacResponse(NamedTuple):
    txn_id: int
    status: V2Status
    ledger_id: int
    lac_body: Buffer | None = None
    last_entry_body: Buffer | None = None


class ForceResponse(NamedTuple):
    txn_id: int
    status: V2Status
    ledger_id: int


class ListEntriesResponse(NamedTuple):
    txn_id: int
    status: V2Status
    ledger_id: int
    availability: bytes | None = None


class BookieInfoResponse(NamedTuple):
    txn_id: int
    status: V2Status
    total_bytes: int | None = None
    free_bytes: int | None = None


class AuthResponse(NamedTuple):
    txn_id: int
    status: V2Status
    message: auth.AuthMessage


class UnknownResponse(NamedTuple):
    """The answer to an operation that the bookie does not serve."""

    txn_id: int
    operation: int
    status: V2Status
