"""Every bound of the system, in one place (DESIGN §12). Nothing in Boki grows without one of these.

Units are in the names. A limit that a user may change is the default of a setting of the process that enforces it.
"""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

RECORD_BYTES: Final = 1 * MIB
"""One record: its data, its tags and their names."""
RECORD_TAGS: Final = 255
RECORD_EXPECTATIONS: Final = 256
TAG_NAME_BYTES: Final = 255
TAG_NAMES_BYTES: Final = 65_535
"""All tag names of one record together."""
BOOK_NAME_BYTES: Final = 1_024

ENTRY_BYTES: Final = 4 * MIB
"""Payload of one ledger entry."""
BATCH_FLUSH_BYTES: Final = 256 * KIB
"""An open batch of a shard is closed at this size."""
BATCH_RECORDS: Final = 65_536
"""Records in one batch; bounds the columns."""
BATCHES_IN_FLIGHT: Final = 4
"""Entries of one shard that wait for their ack quorum."""

FRAME_BYTES: Final = 5 * MIB
"""One frame on any connection, without its length prefix (Apache BookKeeper's default is the same)."""
CONNECTION_BUFFER_BYTES: Final = 256 * KIB
CONNECTION_UNSENT_BYTES: Final = 16 * MIB
"""Bytes queued to one peer, above which its requests are answered `Overloaded` or its pushes are dropped."""
CONNECTION_CALLS: Final = 65_536
"""Unanswered requests on one connection."""

WINDOW_RECORDS: Final = 1_024
"""Undecided numbers of one (book, writer)."""

READ_RECORDS: Final = 4_096
READ_BYTES: Final = 1 * MIB
READ_WAIT_MS: Final = 60_000
"""The longest an engine parks a blocking read; SDKs repeat it."""
READ_MANY_QUERIES: Final = 4_096
AUX_BYTES: Final = 1 * MIB
"""Aux data of one record."""

CALL_TIMEOUT_S: Final = 5.0
CONNECT_TIMEOUT_S: Final = 2.0
SESSION_TIMEOUT_S: Final = 4.0
"""Metadata session: an ephemeral node outlives its process by at most this."""
REQUEST_AGE_S: Final = 60.0
"""An engine drops requests that waited longer (DESIGN §6.9)."""
SDK_GIVE_UP_S: Final = 540.0

METADATA_VALUE_BYTES: Final = 1 * MIB - 1 * KIB
"""ZooKeeper's jute.maxbuffer, with room for the request around the value."""

SLOTS: Final = 1_024
TERM_MAX: Final = 2**28 - 1
POSITION_BITS: Final = 35
POSITION_MAX: Final = 2**POSITION_BITS - 2**20
"""A sequencer orders no cut past this position; it seals itself (DESIGN §5)."""
TERM_SHARDS: Final = 65_536
METALOG_COMMANDS: Final = 4_096
METALOG_COMMANDS_BYTES: Final = 256 * KIB
"""Commands of one metalog entry; with the ends of all shards it stays far below `ENTRY_BYTES`."""
CARRIED_ENTRY_BYTES: Final = 4 * KIB
"""Entries of data ledgers up to this size may ride in the metalog entry that orders them, if their engine is quiet."""
CARRIED_ENTRIES: Final = 32
"""So many may in one metalog entry."""
CARRIED_BEHIND: Final = 8
"""Carried entries of a shard that its data ledger does not have yet."""
ORDERS_WAITING: Final = 4_096
"""Commands that wait at a sequencer for their entry; above, `Overloaded`."""
ORDERS_WAITING_BYTES: Final = 4 * MIB
BARRIERS_WAITING: Final = 65_536
"""Requests that wait at a sequencer for an acknowledged entry."""
TRIM_PAIRS: Final = 4_096
"""(tag, before) pairs of one trim."""
LOST_EVIDENCE_BYTES: Final = 16 * KIB
SHARD_BYTES: Final = 1024 * MIB
SHARD_AGE_S: Final = 3_600.0
