"""Settings of one bookie. Tests make everything tiny; the defaults suit one disk that is shared with nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from boki_bookie.formats import journal_format
from boki_common.limits import FRAME_BYTES, KIB, MIB
from boki_common.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieSettings:
    """See each field; sizes are of this bookie alone."""

    host: str = setting("", help="Name under which clients reach this bookie; empty: the address it binds.")
    port: int = setting(
        0, help="Port under which clients reach this bookie, behind a proxy or a port mapping; 0: the one it binds."
    )
    replace_lost_disk: bool = setting(
        False, help="Start on an empty directory as a new bookie and retire the one whose disk is gone."
    )

    salvage: bool = setting(
        False,
        help="Start on a damaged directory with what can be read; what is missing is answered as unknown until repaired.",
    )
    limbo_check_interval_s: float = setting(
        10.0, help="How often a salvaged bookie looks whether it is repaired.", minimum=0.01
    )

    journal_segment_bytes: int = setting(
        16 * MIB, help="Size of one journal segment, zero-filled once and recycled.", minimum=16 * KIB
    )
    journal_group_bytes: int = setting(4 * MIB, help="Most that one flush of the journal takes.", minimum=4 * KIB)
    journal_queue_bytes: int = setting(
        32 * MIB, help="Bytes that wait for the journal before adds are refused.", minimum=4 * KIB
    )
    journal_queue_records: int = setting(
        65_536, help="Records that wait for the journal before adds are refused.", minimum=1
    )
    journal_spare_segments: int = setting(
        4, help="Recycled segments that are kept for later; more are deleted.", minimum=0
    )
    journal_live_segments: int = setting(
        8, help="A checkpoint begins when more segments wait for it: bounds replay.", minimum=2
    )

    write_cache_bytes: int = setting(
        48 * MIB,
        help="Entries kept in memory until a checkpoint stored them. At half of it a checkpoint begins, at three "
        "quarters acknowledgements wait for it, when it is full adds are refused.",
        minimum=4 * KIB,
    )
    checkpoint_interval_s: float = setting(
        60.0, help="The longest that a changed ledger waits for a checkpoint.", minimum=0.01
    )
    entry_log_bytes: int = setting(
        256 * MIB, help="An entry log file is followed by a new one at this size.", minimum=8 * KIB
    )
    entry_log_open_files: int = setting(64, help="Entry log files kept open for reading.", minimum=1)

    gc_interval_s: float = setting(
        300.0, help="How often deleted ledgers and dead entries are looked for.", minimum=0.01
    )
    gc_grace_s: float = setting(
        600.0,
        help="A ledger is deleted when its metadata was found gone at two reads that are this far apart.",
        minimum=0.0,
    )
    gc_major_interval_s: float = setting(
        86_400.0,
        help="How often the metadata of every ledger is read, to tell copies that belong to other bookies by now, and "
        "files are compacted below compact_major_below.",
        minimum=0.01,
    )
    gc_empties_elsewhere: bool = setting(
        False,
        help="Whether entries go of closed ledgers whose metadata names other bookies only. It can cost a copy when a repair "
        "that gives no holds goes on by an old list of bookies: only while Apache's AutoRecovery does not run.",
    )
    gc_reads_per_s: int = setting(
        100, unit="reads/s", help="Metadata reads that garbage collection makes at most.", minimum=1
    )
    tombstone_days: int = setting(7, help="How long a deleted ledger cannot be made again by a recovery.", minimum=7)
    compact_below: float = setting(
        0.5, help="An entry log file is rewritten when less than this share of it is live.", minimum=0.0, maximum=1.0
    )
    compact_major_below: float = setting(
        0.8,
        help="The same once in gc_major_interval_s, and while the bookie is read-only for want of space.",
        minimum=0.0,
        maximum=1.0,
    )
    compaction_bytes_per_s: int = setting(
        32 * MIB, unit="bytes/s", help="How fast live entries are copied at most.", minimum=4 * KIB
    )
    disk_reserve_bytes: int = setting(
        24 * MIB,
        help="A file of this size is given up on a full disk, so that what is deleted there can be noted down: in the "
        "index, and in a journal segment if the journal waits for one. 0: none.",
        minimum=0,
    )

    read_only_below_bytes: int = setting(
        256 * MIB,
        help="With less space left on the disk the bookie is read-only; the rest is for recovery, checkpoints and compaction.",
        minimum=0,
    )
    control_reserve_bytes: int = setting(
        128 * MIB,
        help="Of read_only_below_bytes, at most half of it: what metalogs and index snapshots may take while the bookie is "
        "read-only, so that trims are ordered and space is reclaimed on a full disk. 0: nothing.",
        minimum=0,
    )
    writable_above_bytes: int = setting(
        512 * MIB, help="With this much space left again it takes adds again.", minimum=0
    )
    disk_check_interval_s: float = setting(10.0, help="How often free space is looked at.", minimum=0.01)

    validation_timeout_s: float = setting(
        30.0, help="The longest a first add waits for the metadata store.", minimum=0.01
    )
    validation_retry_for_s: float = setting(
        2.0,
        help="How long metadata that does not name this bookie (yet) is read again before the add is refused.",
        minimum=0.0,
    )
    validation_waiting_bytes: int = setting(
        32 * MIB, help="First adds that wait for the metadata store; more are refused.", minimum=0
    )
    check_digests: Literal["none", "crc", "all"] = setting(
        "crc",
        help="Digests that an add is checked for before it is stored: none, those that cost under a microsecond (CRC32C, "
        "CRC32), or all (HMAC too).",
    )
    connection_requests: int = setting(
        16_384,
        help="Unanswered requests of one connection; at half as many adds nothing is read from the client for a while, more "
        "are refused.",
        minimum=1,
    )

    connection_request_bytes: int = setting(
        16 * MIB,
        help="Adds of one connection that are not answered yet; above it nothing is read from the client for a while.",
        minimum=4 * KIB,
    )
    connection_unsent_bytes: int = setting(
        16 * MIB,
        help="Answers that a client does not take; above it nothing is read from the client for a while.",
        minimum=4 * KIB,
    )
    slow_reader_timeout_s: float = setting(
        30.0, help="A client that does not take its answers for so long is dropped.", minimum=0.01
    )
    connections: int = setting(4_096, help="Clients connected at once; more are dropped at once.", minimum=1)
    admin_port: int = setting(
        -1,
        help="Port of the administration page over HTTP (7090 is the usual one); 0 picks a free one, -1: none.",
        minimum=-1,
    )
    admin_host: str = setting(
        "127.0.0.1", help="Address of the administration page; beyond this machine only with a cluster token."
    )

    def faults(self) -> Iterator[str]:
        """Rules between the fields."""
        room = self.journal_segment_bytes - journal_format.SEGMENT_OVERHEAD_BYTES
        if not 0 <= self.port < 1 << 16:
            yield f"port: expected 0 to 65535, found {self.port}"
        if self.journal_segment_bytes % journal_format.PAGE_BYTES:
            yield f"journal_segment_bytes: expected a multiple of {journal_format.PAGE_BYTES}"
        if self.journal_segment_bytes >= MIB and room < FRAME_BYTES:
            yield f"journal_segment_bytes: expected room for the largest entry ({FRAME_BYTES} bytes), found {room}"
        if self.journal_queue_bytes < min(room, FRAME_BYTES):
            yield "journal_queue_bytes: expected room for the largest entry"
        if self.writable_above_bytes < self.read_only_below_bytes:
            yield "writable_above_bytes: expected at least read_only_below_bytes"
        if 0 < self.disk_reserve_bytes < self.journal_segment_bytes:
            yield "disk_reserve_bytes: expected 0 or more than journal_segment_bytes"
        if self.compact_major_below < self.compact_below:
            yield "compact_major_below: expected at least compact_below"
