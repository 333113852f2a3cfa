"""What is carried is identified by data ledger and entry."""

from __future__ import annotations

from zlib import crc32

from boki_metalog.entries.metalog_entry import Carried, Close, MetalogEntry, Open, ShardEnd, encode
from boki_sim.clusters.carried_copies import carried_in

ENGINE = "0" * 32


def test_what_is_carried_is_the_last_entry_of_its_shard_in_its_own_ledger() -> None:
    entries = [
        MetalogEntry(0, 0, 1, (ShardEnd(3, 0, 0), ShardEnd(4, 0, 0)), (Open(3, ENGINE, 70), Open(4, ENGINE, 80))),
        MetalogEntry(0, 5, 1, (ShardEnd(3, 3, 1), ShardEnd(4, 2, 2))),
        MetalogEntry(
            5, 7, 1, (ShardEnd(3, 4, 2), ShardEnd(4, 3, 3)), (Close(4),), (Carried(3, b"x"), Carried(4, b"y"))
        ),
        MetalogEntry(7, 8, 1, (ShardEnd(3, 5, 3),), (), (Carried(3, b"z"),)),
    ]
    found = carried_in(map(encode, entries))
    assert found == {(70, 1): crc32(b"x"), (80, 2): crc32(b"y"), (70, 2): crc32(b"z")}
