"""Settings of the ledger client."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from boki_common import limits
from boki_common.backoff import Backoff
from boki_common.settings import setting

WINDOW_ENTRIES: Final = 8_192
WINDOW_BYTES: Final = 32 * limits.MIB
READS_IN_FLIGHT: Final = 64
BATCH_READ_ENTRIES: Final = 128
BATCH_READS_IN_FLIGHT: Final = 4
"""Each is answered by one frame of at most `limits.FRAME_BYTES`."""
WIRE_V2: Final = "v2"
WIRE_V3: Final = "v3"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSettings:
    """One client's limits and time-outs. The defaults suit bookies in one data centre."""

    window_entries: int = setting(
        WINDOW_ENTRIES, help="Entries of one writer that wait for their ack quorum.", minimum=1
    )
    window_bytes: int = setting(WINDOW_BYTES, help="Bytes of one writer that wait for their ack quorum.", minimum=1)
    answer_timeout_s: float = setting(
        limits.CALL_TIMEOUT_S,
        help="A bookie that leaves a request unanswered for this long is taken as lost.",
        minimum=0.001,
    )
    connect_timeout_s: float = setting(
        limits.CONNECT_TIMEOUT_S, help="Time for one attempt to connect to a bookie.", minimum=0.001
    )
    retry_least_s: float = setting(
        0.05, help="First pause before a bookie or the metadata store is tried again.", minimum=0.001
    )
    retry_most_s: float = setting(2.0, help="Longest such pause; each doubles.", minimum=0.001)
    suspect_s: float = setting(10.0, help="A failed bookie is not taken as a replacement for this long.", minimum=0.01)
    idle_change_s: float = setting(
        20.0,
        help="A writer without entries in flight replaces a bookie that fails, or takes no writes, for this long.",
        minimum=0.01,
    )
    quarantine_failures: int = setting(
        5,
        unit="failures",
        help="A bookie that fails this often within quarantine_window_s is put in quarantine.",
        minimum=1,
    )
    quarantine_window_s: float = setting(60.0, help="See quarantine_failures.", minimum=0.0)
    quarantine_s: float = setting(
        300.0,
        help="No new ledger or fragment is put on a bookie in quarantine for this long, unless too few others are up; "
        "0: no quarantine.",
        minimum=0.0,
    )
    reads_in_flight: int = setting(
        READS_IN_FLIGHT, unit="entries", help="Entries that one read or recovery asks for at once.", minimum=1
    )
    speculative_read_s: float = setting(
        0.05,
        help="A replica that has not answered a read for this long is not waited for alone: the next is asked too; doubles.",
        minimum=0.001,
    )
    batch_read_entries: int = setting(
        BATCH_READ_ENTRIES, help="Entries that one batch read asks one bookie for.", minimum=1
    )
    batch_reads_in_flight: int = setting(
        BATCH_READS_IN_FLIGHT, unit="requests", help="Batch reads that one read of a range has under way.", minimum=1
    )
    wire_protocol: str = setting(
        WIRE_V2,
        help='"v2": adds and reads in the faster protocol, the rest in v3. "v3": everything in v3, without batch reads.',
    )
    explicit_lac_ms: float = setting(
        20.0,
        help="So long after its last acknowledgement a writer tells the bookies how far readers may read. 0: never.",
        minimum=0.0,
    )
    read_ahead_entries: int = setting(
        1_024, help="Entries that one read of a long range asks for before they are consumed.", minimum=1
    )
    read_ahead_bytes: int = setting(
        8 * limits.MIB, help="The same in bytes, estimated while they are under way.", minimum=1
    )
    bookies_without_token: bool = setting(
        False,
        help="Where the cluster has a token, also use bookies that do not ask for it, such as Apache's: whoever reaches them may "
        "write to them.",
    )
    retry_for_s: float = setting(
        10.0,
        help="How long reads, recovery and metadata changes are retried while bookies or the store are away.",
        minimum=0.0,
    )

    def backoff(self) -> Backoff:
        """The pauses of one series of attempts."""
        return Backoff(self.retry_least_s, self.retry_most_s)

    def faults(self) -> Iterable[str]:
        if self.wire_protocol not in (WIRE_V2, WIRE_V3):
            yield f'wire_protocol must be "{WIRE_V2}" or "{WIRE_V3}", found "{self.wire_protocol}"'
        if self.retry_least_s > self.retry_most_s:
            yield f"retry_least_s ({self.retry_least_s}) must not exceed retry_most_s ({self.retry_most_s})"
