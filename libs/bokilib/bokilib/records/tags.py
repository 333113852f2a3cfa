"""The tags of all libraries, in one place. Pure.

A tag is `<library>/<stream>/<id>` and has up to 255 bytes. Of a longer one the beginning and a hash are kept, so two ids may share a
tag. Sharing costs false conflicts and nothing else, because events contain their ids and readers compare them.

| tag | records in its stream |
|---|---|
| `lib/member/<group>` | heartbeats of processes |
| `lib/carry/<library>` | claims of the process that rewrites the library's old records without an owner |
| `store/o/<name>` | operations, parts of commits, deletions of an object |
| `store/ck/<name>` | its checkpoints and its deletions: a deletion also makes a checkpoint in progress fail |
| `store/dir/<collection>/<0..15>` | names that enter and leave a collection; objects with a time are in "/times" |
| `store/dirck/<collection>/<0..15>` | checkpoints of these |
| `flow/own/<id>` `flow/wf/<id>` | an instance's fence; its history |
| `flow/part/<g>/<k>` `flow/to/<g>/<k>` `flow/partown/<g>/<k>` `flow/done/<g>/<k>` | starts, signals, claims, ends of a partition |
| `flow/attr/<part>/<k>=<v>` `flow/out/<id>/<key>` | searchable attributes; events that an instance emits |
| `table/row/<t>/<k>` `table/rows/<t>` `table/cat/<t>` | changes of a row of a table; of all its rows; the table's definition |
| `table/floor/<t>` | the seqnum below which versions of its rows may be trimmed |
| `lock/<k>` `lock/ck/<k>` | a lock's queue; its checkpoints |
| `queue/cfg/<q>` `queue/p/<q>/<i>` `queue/own/<q>/<i>/<g>` `queue/c/<q>/<i>/<g>` | settings; messages; owners; consumers |
| `queue/old/<q>/<i>` | messages rewritten out of old terms |
| `rsm/own/<g>/<p>` `rsm/p/<g>/<p>` `rsm/ck/<g>/<p>` | owners, messages and commits, checkpoints of a partition of machines |
| `rsm/m/<g>/<name>` | snapshots of a machine; its creation by key |
| `rsm/r/<process>` | answers to questions of a process |
"""

from __future__ import annotations

from typing import Final

import xxhash

from boki_common.errors import InvalidArgument
from boki_common.limits import TAG_NAME_BYTES
from bokilib.stacks import shown

DIRECTORY_BUCKETS: Final = 16
PARTITIONS: Final = 64
_HASH_CHARS: Final = 32
_MARK: Final = "~"
_REWRITER: Final = "lib/carry"


def _utf8(name: str) -> bytes:
    """Encode a name. Raises InvalidArgument for text that UTF-8 cannot encode: lone surrogates."""
    try:
        return name.encode()
    except UnicodeEncodeError as fault:
        raise InvalidArgument(
            f"expected a name that UTF-8 can encode, found {shown(name)}", found=shown(name)
        ) from fault


def tag_of(*parts: str | int) -> str:
    """Join parts into a tag. A tag that would be too long becomes its beginning, "~" and a hash of the whole."""
    whole = "/".join(map(str, parts))
    if len(whole) <= TAG_NAME_BYTES and whole.isascii():
        return whole
    encoded = _utf8(whole)
    if len(encoded) <= TAG_NAME_BYTES:
        return whole
    kept = encoded[: TAG_NAME_BYTES - _HASH_CHARS - len(_MARK)].decode(errors="ignore")
    return f"{kept}{_MARK}{xxhash.xxh3_128_hexdigest(encoded)}"


def bucket_of(name: str) -> int:
    """Return the bucket of a collection's directory for a name."""
    return int(xxhash.xxh3_64_intdigest(_utf8(name)) % DIRECTORY_BUCKETS)


def partition_of(id: str) -> int:
    """Return the partition of an instance."""
    return int(xxhash.xxh3_64_intdigest(_utf8(id)) % PARTITIONS)


def member(group: str) -> str:
    """Return the tag of the heartbeats of a group."""
    return tag_of("lib/member", group)


def rewriter(library: str) -> str:
    """Return the tag of the fence of the process that rewrites a library's old records without an owner."""
    return tag_of(_REWRITER, library)


def is_rewriter(tag: str) -> bool:
    """Return whether a tag is that of a `rewriter` fence, or of the one fence for all libraries that older versions had."""
    return tag == _REWRITER or tag.startswith(f"{_REWRITER}/")


def store_object(name: str) -> str:
    """Return the tag of an object's history."""
    return tag_of("store/o", name)


def store_checkpoint(name: str) -> str:
    """Return the tag of an object's checkpoints."""
    return tag_of("store/ck", name)


def store_directory(collection: str, bucket: int) -> str:
    """Return the tag of the names that enter and leave a bucket of a collection."""
    return tag_of("store/dir", collection, bucket)


def store_directory_checkpoint(collection: str, bucket: int) -> str:
    """Return the tag of a bucket's checkpoints."""
    return tag_of("store/dirck", collection, bucket)


def flow_own(id: str) -> str:
    """Return the tag of a workflow instance's fence."""
    return tag_of("flow/own", id)


def flow_history(id: str) -> str:
    """Return the tag of a workflow instance's history."""
    return tag_of("flow/wf", id)


def flow_part(group: str, partition: int) -> str:
    """Return the tag of the starts of instances in a partition."""
    return tag_of("flow/part", group, partition)


def flow_to(group: str, partition: int) -> str:
    """Return the tag of the records for instances of a partition from outside, such as signals. Workers follow it."""
    return tag_of("flow/to", group, partition)


def flow_partition_owner(group: str, partition: int) -> str:
    """Return the tag of a partition's fence."""
    return tag_of("flow/partown", group, partition)


def flow_blocked(group: str) -> str:
    """Return the tag of instances that were blocked, resumed, or claimed from another partition. Workers of the group follow it."""
    return tag_of("flow/blocked", group)


def flow_done(group: str, partition: int) -> str:
    """Return the tag of the ends of instances in a partition."""
    return tag_of("flow/done", group, partition)


def flow_attribute(partition: int, key: str, value: str) -> str:
    """Return the tag of the instances of a partition with an attribute of this value."""
    return tag_of("flow/attr", partition, f"{key}={value}")


def flow_output(id: str, key: str) -> str:
    """Return the tag of the values that an instance emits under a key. The key "result" is for a large result."""
    return tag_of("flow/out", id, key)


def table_row(table: str, key: str) -> str:
    """Return the tag of the changes of a row of a table."""
    return tag_of("table/row", table, key)


def table_rows(table: str) -> str:
    """Return the tag of the changes of all rows of a table."""
    return tag_of("table/rows", table)


def table_catalog(table: str) -> str:
    """Return the tag of a table's definition."""
    return tag_of("table/cat", table)


def table_floor(table: str) -> str:
    """Return the tag of the seqnum below which versions of a table's rows may be trimmed."""
    return tag_of("table/floor", table)


def lock(name: str) -> str:
    """Return the tag of a lock's queue."""
    return tag_of("lock", name)


def lock_checkpoint(name: str) -> str:
    """Return the tag of the checkpoints of a lock's queue."""
    return tag_of("lock/ck", name)


def queue_config(queue: str) -> str:
    """Return the tag of a queue's settings and groups."""
    return tag_of("queue/cfg", queue)


def queue_messages(queue: str, shard: int) -> str:
    """Return the tag of a shard's messages."""
    return tag_of("queue/p", queue, shard)


def queue_moved(queue: str) -> str:
    """Return the tag of records that moved messages out of streams of shards that a queue does not have."""
    return tag_of("queue/moved", queue)


def queue_old(queue: str, shard: int) -> str:
    """Return the tag of a shard's messages that were rewritten out of old terms."""
    return tag_of("queue/old", queue, shard)


def queue_owner(queue: str, shard: int, group: str) -> str:
    """Return the tag of the fence of a shard's owner in a group."""
    return tag_of("queue/own", queue, shard, group)


def queue_consumer(queue: str, shard: int, group: str) -> str:
    """Return the tag of the deliveries and ACKs of a shard in a group."""
    return tag_of("queue/c", queue, shard, group)


def rsm_group(group: str) -> str:
    """Return the group of members under which the hosts of a group of machines send heartbeats."""
    return f"rsm/{group}"


def rsm_owner(group: str, partition: int) -> str:
    """Return the tag of the fence of a partition of machines."""
    return tag_of("rsm/own", group, partition)


def rsm_partition(group: str, partition: int) -> str:
    """Return the tag of the messages to machines of a partition, and of their commits."""
    return tag_of("rsm/p", group, partition)


def rsm_checkpoint(group: str, partition: int) -> str:
    """Return the tag of the checkpoints of a partition of machines."""
    return tag_of("rsm/ck", group, partition)


def rsm_machine(group: str, name: str) -> str:
    """Return the tag of the snapshots of a machine, and of its creation by key."""
    return tag_of("rsm/m", group, name)


def rsm_replies(process: str) -> str:
    """Return the tag of the answers to questions of a process."""
    return tag_of("rsm/r", process)
