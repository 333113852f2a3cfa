"""What is decided meanwhile is one record; bodies of dead letters are spread over several."""

from __future__ import annotations

import msgspec

from bokilib.records.contribution import Contribution
from bokiqueue.model.events import Acked, Dead, Delivered, Id, Item, Nacked, Pushed
from bokiqueue.shard.outbox import DEAD_BYTES, Letter, Outbox


def test_all_goes_as_one_record_under_the_claim() -> None:
    box = Outbox()
    assert not box
    box.delivered.append(Delivered("s", Id(9, 0)))
    box.acks.append(Id(1, 0))
    box.nacks.append((Id(2, 0), 3, 77))
    push = Contribution(("p",), {}, (Pushed("d/0", ()),))
    box.letters.append(Letter(Id(4, 0), Item(msgspec.Raw(b"\xc0")), push))
    assert box
    one = box.contribution("s", "c", {"own": 7})
    assert (one.tags, one.expect) == (("c", "p"), {"own": 7})
    assert one.events == (
        Delivered("s", Id(9, 0)),
        Acked("s", (Id(1, 0),)),
        Nacked("s", ((2, 0, 3, 77),)),
        Dead("s", (Id(4, 0),)),
        Pushed("d/0", ()),
    )


def test_large_letters_go_in_the_next_record() -> None:
    box = Outbox()
    body = msgspec.Raw(msgspec.msgpack.encode("x" * (DEAD_BYTES // 2)))
    for seqnum in range(3):
        box.letters.append(Letter(Id(seqnum, 0), Item(body), None))
    rest = box.overflow()
    assert [letter.id.seqnum for letter in box.letters] == [0]
    assert [letter.id.seqnum for letter in rest.letters] == [1, 2]
    assert not Outbox().overflow()
