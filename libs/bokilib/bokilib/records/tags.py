"""Which stream is whose: the tags of all libraries, in one place. Pure.

A tag is `<library>/<what>/<id>`. It has up to 255 bytes; of a longer one the beginning and a hash are kept, so two ids may
share a tag. That costs false conflicts and no more, because events hold their ids and readers compare them.

| tag | who joins it |
|---|---|
| `lib/member/<group>` | heartbeats of processes |
| `lib/carry/<library>` | who carries forward what has no owner, of one library |
| `store/o/<name>` | operations, parts of commits, deletions of an object |
| `store/ck/<name>` | its checkpoints, and deletions: what ends an object ends its checkpoints, also one that is under way |
| `store/dir/<collection>/<0..15>` | names that begin and end to be in a collection; objects that have a time are in "/times" |
| `store/dirck/<collection>/<0..15>` | checkpoints of these |
| `flow/own/<id>` `flow/wf/<id>` | an instance's fence; its history |
| `flow/part/<g>/<k>` `flow/to/<g>/<k>` `flow/partown/<g>/<k>` `flow/done/<g>/<k>` | of a partition of instances |
| `flow/attr/<part>/<k>=<v>` `flow/out/<id>/<key>` | searchable attributes; what an instance emits |
| `table/row/<t>/<k>` `table/rows/<t>` `table/cat/<t>` | changes of a row of a table; of all its rows; what the table is |
| `table/floor/<t>` | which versions of its rows are gone |
| `lock/<k>` `lock/ck/<k>` | a lock's queue; its checkpoints |
| `queue/cfg/<q>` `queue/p/<q>/<i>` `queue/own/<q>/<i>/<g>` `queue/c/<q>/<i>/<g>` | settings; messages; owners; consumers |
| `queue/old/<q>/<i>` | messages that were carried forward |
"""

from __future__ import annotations

from typing import Final

import xxhash

from boki_common.limits import TAG_NAME_BYTES

DIRECTORY_BUCKETS: Final = 16
PARTITIONS: Final = 64
_HASH_CHARS: Final = 32
_MARK: Final = "~"
_REWRITER: Final = "lib/carry"


def tag_of(*parts: str | int) -> str:
    """A tag of its parts; of a long one the beginning, "~" and a hash of all."""
    whole = "/".join(map(str, parts))
    if len(whole) <= TAG_NAME_BYTES and whole.isascii():
        return whole
    encoded = whole.encode()
    if len(encoded) <= TAG_NAME_BYTES:
        return whole
    kept = encoded[: TAG_NAME_BYTES - _HASH_CHARS - len(_MARK)].decode(errors="ignore")
    return f"{kept}{_MARK}{xxhash.xxh3_128_hexdigest(encoded)}"


def bucket_of(name: str) -> int:
    """The bucket of a collection's directory that a name is in."""
    return int(xxhash.xxh3_64_intdigest(name.encode()) % DIRECTORY_BUCKETS)


def partition_of(id: str) -> int:
    """The partition of an instance."""
    return int(xxhash.xxh3_64_intdigest(id.encode()) % PARTITIONS)


def member(group: str) -> str:
    """Heartbeats of a group of processes."""
    return tag_of("lib/member", group)


def rewriter(library: str) -> str:
    """Claims of who carries what of a library has no owner."""
    return tag_of(_REWRITER, library)


def is_rewriter(tag: str) -> bool:
    """Whether a tag is of such claims, also of one for all libraries, which there was once."""
    return tag == _REWRITER or tag.startswith(f"{_REWRITER}/")


def store_object(name: str) -> str:
    """The history of an object."""
    return tag_of("store/o", name)


def store_checkpoint(name: str) -> str:
    """Checkpoints of an object."""
    return tag_of("store/ck", name)


def store_directory(collection: str, bucket: int) -> str:
    """Names that begin and end to be in a bucket of a collection."""
    return tag_of("store/dir", collection, bucket)


def store_directory_checkpoint(collection: str, bucket: int) -> str:
    """Checkpoints of a bucket."""
    return tag_of("store/dirck", collection, bucket)


def flow_own(id: str) -> str:
    """The fence of a workflow's instance."""
    return tag_of("flow/own", id)


def flow_history(id: str) -> str:
    """The history of an instance."""
    return tag_of("flow/wf", id)


def flow_part(group: str, partition: int) -> str:
    """What was started in a partition."""
    return tag_of("flow/part", group, partition)


def flow_to(group: str, partition: int) -> str:
    """What comes from others to instances of a partition: workers follow it."""
    return tag_of("flow/to", group, partition)


def flow_partition_owner(group: str, partition: int) -> str:
    """The fence of a partition."""
    return tag_of("flow/partown", group, partition)


def flow_blocked(group: str) -> str:
    """What was blocked, resumed, or claimed from beyond its partition: workers of the group follow it."""
    return tag_of("flow/blocked", group)


def flow_done(group: str, partition: int) -> str:
    """What ended in a partition."""
    return tag_of("flow/done", group, partition)


def flow_attribute(partition: int, key: str, value: str) -> str:
    """Instances that have an attribute."""
    return tag_of("flow/attr", partition, f"{key}={value}")


def flow_output(id: str, key: str) -> str:
    """What an instance emits under a key; "result" is a large result."""
    return tag_of("flow/out", id, key)


def table_row(table: str, key: str) -> str:
    """Changes of a row of a table of a database."""
    return tag_of("table/row", table, key)


def table_rows(table: str) -> str:
    """Changes of all rows of a table."""
    return tag_of("table/rows", table)


def table_catalog(table: str) -> str:
    """What a table is."""
    return tag_of("table/cat", table)


def table_floor(table: str) -> str:
    """Which versions of rows of a table are gone."""
    return tag_of("table/floor", table)


def lock(name: str) -> str:
    """The queue of a lock."""
    return tag_of("lock", name)


def lock_checkpoint(name: str) -> str:
    """Checkpoints of a lock's queue."""
    return tag_of("lock/ck", name)


def queue_config(queue: str) -> str:
    """Settings and groups of a queue."""
    return tag_of("queue/cfg", queue)


def queue_messages(queue: str, shard: int) -> str:
    """Messages of a shard."""
    return tag_of("queue/p", queue, shard)


def queue_old(queue: str, shard: int) -> str:
    """Messages of a shard that were carried forward."""
    return tag_of("queue/old", queue, shard)


def queue_owner(queue: str, shard: int, group: str) -> str:
    """The fence of a shard's consumer."""
    return tag_of("queue/own", queue, shard, group)


def queue_consumer(queue: str, shard: int, group: str) -> str:
    """What a shard's consumer did."""
    return tag_of("queue/c", queue, shard, group)
