"""Settings of an engine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from boki_common import limits
from boki_common.backoff import Backoff
from boki_common.errors import InvalidArgument
from boki_common.settings import setting
from boki_metalog.terms.index_slots import EVERY_SLOT, parse_index_slots


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """One engine process."""

    advertise: tuple[str, ...] = setting(
        (),
        help="Hosts or host:port under which engines and SDKs reach this engine, in a container or behind a port mapping; empty: as it "
        "listens.",
    )
    outside_listen: tuple[str, ...] = setting(
        (),
        help="Further addresses to listen on, for SDKs of another network: who comes there is told the outside addresses of all engines.",
    )
    outside_advertise: tuple[str, ...] = setting(
        (), help="Hosts or host:port under which these SDKs reach this engine; empty: as it listens there."
    )
    replicas: int = setting(3, unit="bookies", help="Copies of each data ledger's entries.", minimum=1)
    acks: int = setting(2, unit="bookies", help="Copies that must be durable before an entry counts.", minimum=1)
    cache_bytes: int = setting(256 * limits.MIB, help="Record batches kept in memory for reads.", minimum=0)
    append_queue_bytes: int = setting(
        64 * limits.MIB,
        help="Appended batches that are not indexed yet; from half of it on clients are slowed down, above it appends are "
        "refused as Overloaded.",
        minimum=2 * limits.ENTRY_BYTES,
    )
    carried_entry_bytes: int = setting(
        limits.CARRIED_ENTRY_BYTES, maximum=limits.CARRIED_ENTRY_BYTES, minimum=0,
        help="Appends that find nothing on its way are ordered and made durable in one step, instead of two, if their entry has "
        "at most so many bytes: it rides in the metalog, and is written to its data ledger a little later. 0: none.",
    )  # fmt: skip
    append_age_s: float = setting(
        limits.REQUEST_AGE_S, help="Appended batches that wait longer for a shard are dropped.", minimum=0.01
    )
    compress: bool = setting(False, help="Compress the data of entries with zstd where it saves an eighth.")
    shard_bytes: int = setting(limits.SHARD_BYTES, help="Size at which a shard's ledger is rolled.", minimum=1)
    shard_age_s: float = setting(limits.SHARD_AGE_S, help="Age at which a shard's ledger is rolled.", minimum=0.1)
    retry_first_s: float = setting(
        0.05, help="First pause before bookies or the sequencer are tried again; it doubles.", minimum=0.001
    )
    retry_limit_s: float = setting(2.0, help="The longest such pause.", minimum=0.001)
    parked_reads: int = setting(16_384, unit="reads", help="Reads that may wait for a record or a position.", minimum=1)
    position_wait_s: float = setting(
        limits.REQUEST_AGE_S, help="A read waits so long for the index to reach its session.", minimum=0.01
    )
    session_writer_age_s: float = setting(
        3_600.0,
        help="Session writers not heard of for longer are forgotten, by the log's time and by this engine's; SDKs renew theirs well "
        "before. 0: never.",
        minimum=0.0,
    )
    writer_retention_s: float = setting(
        0.0,
        help="Named writers not heard of for longer are forgotten, by engines that ran for so long; 0: never.",
        minimum=0.0,
    )
    forget_age_s: float = setting(
        3_600.0,
        help="A trim that is to forget takes streams whose newest record is older, by the log's time and by this engine's, which has to "
        "run for so long. Whole minutes count.",
        minimum=2 * limits.TRANSACTION_AGE_S,
    )
    expiry_period_s: float = setting(60.0, help="How often idle writers are looked for.", minimum=0.01)

    aux_backup_s: float = setting(
        0.0,
        minimum=0.0,
        help="Aux data that changed is written to the bookies so often, and read again when an engine starts; 0: never.",
    )
    aux_backup_bytes: int = setting(
        64 * limits.MIB, help="Aux data of one backup; what was used last goes first.", minimum=1
    )

    clock_check_s: float = setting(
        60.0, help="How often this machine's clock is compared with the sequencers'.", minimum=0.01
    )
    clock_bound_s: float = setting(
        5.0,
        help="Clocks that certainly differ by more are warned of: times of records are the sequencer's.",
        minimum=0.0,
    )

    index_slots: str = setting(
        EVERY_SLOT, unit="slots",
        help="Slots whose books this engine indexes, such as 0-511,768-1023; calls about others are forwarded to engines that "
        "index them. Two engines should index each slot.",
    )  # fmt: skip

    index_directory: str = setting(
        "", unit="",
        help="Large parts of the index are kept in files of this directory, which nobody else uses, instead of memory. They are "
        "made anew after each start. Empty: all in memory.",
    )  # fmt: skip
    housekeeping_s: float = setting(
        1.0, help="How often it is looked whether an index snapshot is due, or storage can be reclaimed.", minimum=0.01
    )
    snapshot_records: int = setting(
        262_144, minimum=1,
        help="An index snapshot is written when so many were applied since the last one, and at least half of its rows; "
        "when a term has ended since, already at half of its rows, or once that one is old: a second for each MiB of it.",
    )  # fmt: skip
    reclaim_grace_s: float = setting(
        600.0, minimum=0.0, help="Ledgers of reclaimed terms and of earlier index snapshots are deleted so much later."
    )
    leftover_scan_s: float = setting(
        3_600.0, minimum=0.01, help="How often all ledgers are looked at for index snapshots that were never named."
    )

    def backoff(self) -> Backoff:
        """The pauses of one series of attempts."""
        return Backoff(self.retry_first_s, self.retry_limit_s)

    def faults(self) -> Iterable[str]:
        if self.acks > self.replicas:
            yield f"acks ({self.acks}) cannot exceed replicas ({self.replicas})"
        try:
            parse_index_slots(self.index_slots)
        except InvalidArgument as error:
            yield f"index_slots: {error}"
