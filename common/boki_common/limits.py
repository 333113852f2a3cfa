"""Every bound of the system, in one place (DESIGN §12). Nothing in Boki grows without one of these.

Units are in the names. A limit that a user may change is the default of a setting of the process that enforces it.
"""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

RECORD_BYTES: Final = 1 * MIB
"""Data of one record; its tags are bounded apart."""
RECORD_TAGS: Final = 255
RECORD_EXPECTATIONS: Final = 256
TAG_NAME_BYTES: Final = 255
TAG_NAMES_BYTES: Final = 65_535
"""All tag names of one record together, with two bytes for each."""
PAYLOAD_BYTES: Final = RECORD_BYTES + 2 + TAG_NAMES_BYTES
"""Data of one record, behind the names of its tags and their length. Three fit into an entry, and a page with the data beside them
into a frame."""
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
"""Of a busy connection, which receives into buffers of this size."""
CONNECTION_FIRST_BUFFER_BYTES: Final = 4 * KIB
"""The first one of a connection; each that it fills is followed by one of twice the size."""
CONNECTIONS: Final = 16_384
"""To one server; bookies have a setting. One more is dropped at once."""
CONNECTION_IDLE_S: Final = 3_600.0
"""A connection over which neither side sent anything for so long is closed by the server; our clients send something in time."""
CONNECTION_VANISHED_S: Final = 120
"""A peer whose machine has not answered the network for so long is gone."""
STRANGER_FRAME_BYTES: Final = 64 * KIB
"""One frame of a peer that has not introduced itself yet: whose HELLO was not accepted."""
STRANGER_WAIT_S: Final = 5.0
"""How long a connection may stay without that."""
STRANGERS: Final = 1_024
"""Such connections to one server; one more takes the place of the oldest."""
STRANGERS_BUFFERED_BYTES: Final = 16 * MIB
"""Bytes in buffers of such connections beyond their first ones, together; one that wants more is dropped."""

LOG_HELD_BYTES: Final = 1 * MIB
"""Log lines that standard error does not take yet; above, they are lost, and counted."""
LOG_FLUSH_S: Final = 1.0
"""What is held then is waited for at the end of a process."""
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
READ_TAGS: Final = 255
"""Tags of one read of several."""
FOLLOW_IDLE_MS: Final = 50_000
"""The position of who follows several tags moves on at least so often, though nothing comes."""
AUX_BYTES: Final = 1 * MIB
"""Aux data of one record."""

CALL_TIMEOUT_S: Final = 5.0
CONNECT_TIMEOUT_S: Final = 2.0
SESSION_TIMEOUT_S: Final = 4.0
"""Metadata session: an ephemeral node outlives its process by at most this."""
TRANSACTION_AGE_S: Final = 60.0
"""So long what was read may be counted on by who appends on condition: nothing is forgotten that is not twice as old."""
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
UNREADABLE_KEPT: Final = 1_024
"""Entries that nobody can make sense of, and that an engine remembers, so that reads do not load them again."""
CARRIED_BEHIND: Final = 8
"""Carried entries of a shard that its data ledger does not have yet."""
ORDERS_WAITING: Final = 4_096
"""Commands that wait at a sequencer for their entry; above, `Overloaded`."""
ORDERS_WAITING_BYTES: Final = 4 * MIB
BARRIERS_WAITING: Final = 65_536
"""Requests that wait at a sequencer for proof that its term is not over."""
TRIM_PAIRS: Final = 4_096
"""(tag, before) pairs of one trim."""
LOST_EVIDENCE_BYTES: Final = 16 * KIB
SHARD_BYTES: Final = 1024 * MIB
SHARD_AGE_S: Final = 3_600.0

METADATA_CALLS: Final = 4_096
"""Calls of one process that wait for the metadata store."""
METADATA_WATCHES: Final = 65_536
"""Open watches of one process, and of a store in memory all."""

HTTP_TARGET_BYTES: Final = 8 * KIB
"""Path and query of one request."""
HTTP_FIELD_BYTES: Final = 16 * KIB
"""Of one header, its name included. Not HTTP_TARGET_BYTES: the parser reports only the limit that was reached."""
HTTP_FIELDS: Final = 128
"""Headers of one request."""
HTTP_PAGE_REQUEST_BYTES: Final = 64 * KIB
"""Body of one request to the page of a role."""
HTTP_PAGE_CONNECTIONS: Final = 64
"""To the page of a role, open at once; more are ended."""

CONNECTION_BACKLOG: Final = 1_024
"""Connections that wait to be accepted."""

LEDGER_FRAGMENTS_KEPT: Final = 1_024
"""Fragments of one ledger of which the replica that is kept to is remembered."""
LEDGER_BOOKIES_KNOWN: Final = 65_536
"""Bookies that are remembered as ours; beyond, they are looked up again."""
LEDGER_BOOKIES_WATCHED: Final = 4_096
"""Bookies whose failures are counted."""
LEDGER_LINKS_PER_BOOKIE: Final = 16
"""Connections of one client to one bookie."""
LEDGER_COPIES_AT_ONCE: Final = 32
"""Entries that a repair reads or sends at the same time: so many are in memory."""
LEDGER_COPY_BYTES: Final = 16 * MIB
"""Adds of a repair that wait for the bookie: half of what its journal lets wait by default. One entry may always go."""
LEDGER_LATE_ANSWERS: Final = 1_024
"""Requests to a bookie that were given up and may still be answered; with more the connection is dropped."""
LEDGER_FENCE_CHECKS: Final = 4
"""Questions of one writer whether it was fenced, in flight: as many groups of reads need not wait for each other."""

BOOKIE_DIRECTORIES: Final = 64
"""Of one bookie."""
BOOKIE_LEDGERS_REMEMBERED: Final = 65_536
"""Ledgers of which a bookie keeps the digest, and the LAC, in memory."""
BOOKIE_LAC_WAITERS: Final = 65_536
"""Waiters for LACs of this bookie, of all connections."""
BOOKIE_REPEATS_WAITING: Final = 65_536
"""Adds that wait to be compared with an entry of the entry log."""
BOOKIE_LEDGERS_LOOKED_UP: Final = 1_024
"""Ledgers whose metadata is read before their first add is taken."""
BOOKIE_DIGESTS_READ: Final = 64
"""Ledgers whose metadata is read for their digest; others wait for their next add."""

ENGINE_BOOKS_ROUTED: Final = 131_072
"""Books whose slots an engine keeps; above it all are forgotten."""
SNAPSHOT_CHUNKS_IN_FLIGHT: Final = 8
"""Chunks of a snapshot on their way to its ledger."""
SNAPSHOT_RESERVE_BYTES: Final = 32 * MIB
"""A snapshot of more, before it is compressed, is not written to the reserves of full disks."""
SNAPSHOT_LEDGER_CHUNKS: Final = 1_024
"""A snapshot of more goes on in another ledger."""
