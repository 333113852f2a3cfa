"""The LogBook API over HTTP says what the SDK says, in JSON."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from typing import TYPE_CHECKING

import pytest

from boki_common.errors import Overloaded

if TYPE_CHECKING:
    from boki.testing import MemoryCluster
    from boki_gateway.testing import Requester


async def test_what_is_appended_is_read(requester: Requester) -> None:
    reply = await requester.ask("POST", "/v1/books/orders/records", {"text": "two apples", "tags": ["user/1", 42]})
    seqnum = reply.body["seqnum"]
    assert (reply.status, reply.headers["Location"]) == (201, f"/v1/books/orders/records/{seqnum}")
    assert reply.body["position"] == seqnum
    found = await requester.get(reply.headers["Location"])
    record = found.body["record"]
    assert found.status == 200
    assert record.pop("time_ms") > 0
    assert record == {"seqnum": seqnum, "tags": ["user/1", "~42"], "book": "orders", "data": "dHdvIGFwcGxlcw=="}
    as_text = (await requester.get(f"/v1/books/orders/records/{seqnum}", encoding="text")).body["record"]
    assert as_text["text"] == "two apples"
    assert "data" not in as_text


async def test_bytes_go_in_and_out_as_base64(requester: Requester) -> None:
    data = b64encode(bytes(range(256))).decode()
    appended = await requester.ask("POST", "/v1/books/b/records", {"data": data})
    for encoding in ("base64", "text"):
        found = await requester.get(f"/v1/books/b/records/{appended.body['seqnum']}", encoding=encoding)
        assert found.body["record"]["data"] == data, "what is no UTF-8 stays base64"


async def test_next_prev_and_tail(requester: Requester) -> None:
    one, two, three = [await requester.append("b", text, tag) for text, tag in (("1", "x"), ("2", "y"), ("3", "x"))]

    async def seqnum(call: str, **params: str) -> str | None:
        record = (await requester.get(f"/v1/books/b/records/{call}", **params)).body["record"]
        return None if record is None else str(record["seqnum"])

    assert await seqnum("next") == one
    assert await seqnum("next", at_least=str(int(one) + 1)) == two
    assert await seqnum("next", at_least=str(int(one) + 1), tag="x") == three
    assert await seqnum("next", at_least=str(int(three) + 1)) is None
    assert await seqnum("prev", at_most=str(int(three) - 1), tag="x") == one
    assert await seqnum("tail") == three
    assert await seqnum("tail", tag="y") == two
    assert await seqnum("tail", tag="nobody") is None
    for consistency in ("any", "session", "linearizable"):
        assert await seqnum("tail", consistency=consistency) == three


async def test_pages_of_a_range_follow_each_other(requester: Requester) -> None:
    seqnums = [await requester.append("b", str(number), "even" if number % 2 == 0 else "odd") for number in range(7)]
    found: list[str] = []
    start = "0"
    pages = 0
    while True:
        page = (await requester.get("/v1/books/b/records", start=start, limit="3")).body
        found += [record["seqnum"] for record in page["records"]]
        start = page["next"]
        pages += 1
        if not page["more"]:
            break
    assert (found, pages) == (seqnums, 3)
    again = (await requester.get("/v1/books/b/records", start=start)).body
    assert (again["records"], again["next"], again["more"]) == ([], start, False)
    some = (await requester.get("/v1/books/b/records", tag="even", start=seqnums[1], stop=seqnums[6])).body
    assert [record["seqnum"] for record in some["records"]] == [seqnums[2], seqnums[4]]


async def test_a_long_poll_wakes_with_the_record(requester: Requester) -> None:
    async def later(path: str, **params: str) -> asyncio.Task[object]:
        before = requester.gateway._parts.admission.requests
        waiting = asyncio.ensure_future(requester.get(path, **params))
        while requester.gateway._parts.admission.requests == before:
            await asyncio.sleep(0)
        return waiting

    for path, name in (("/v1/books/p/records/next", "at_least"), ("/v1/books/p/records", "start")):
        tail = (await requester.get("/v1/books/p/records/tail")).body["record"]
        after = str(int(tail["seqnum"]) + 1) if tail else "0"
        waiting = await later(path, wait="30", **{name: after})
        seqnum = await requester.append("p", "x")
        body = (await waiting).body  # type: ignore[attr-defined]
        record = body["record"] if "record" in body else body["records"][0]
        assert record["seqnum"] == seqnum
    empty = (await requester.get("/v1/books/none/records", wait="0.01")).body
    assert (empty["records"], empty["next"], empty["more"]) == ([], "0", False)


async def test_many_streams_in_one_request(requester: Requester) -> None:
    one = await requester.append("b", "1", "x")
    two = await requester.append("b", "2", "y", "x")
    queries = [{"tag": "x"}, {"tag": "x", "at_most": one}, {"tag": "nobody"}, {}, {"tag": "y", "at_most": int(two)}]
    found = await requester.ask("POST", "/v1/books/b/records/prev-many", {"queries": queries})
    assert [record and record["seqnum"] for record in found.body["records"]] == [two, one, None, two, two]


@pytest.mark.parametrize("kind", ["json", "lines"])
async def test_a_batch_is_appended_in_order(requester: Requester, kind: str) -> None:
    records = [{"text": "a", "tags": ["x"]}, {"data": "Yg=="}, {"text": "c"}]
    if kind == "json":
        reply = await requester.ask("POST", "/v1/books/b/records/batch", {"records": records})
    else:
        lines = b'{"text": "a", "tags": ["x"]}\n\n{"data": "Yg=="}\n{"text": "c"}'
        headers = {"Content-Type": "application/x-ndjson"}
        reply = await requester.ask("POST", "/v1/books/b/records/batch", data=lines, headers=headers)
    assert reply.status == 200
    found = (await requester.get("/v1/books/b/records", encoding="text")).body["records"]
    assert [record["seqnum"] for record in found] == reply.body["seqnums"]
    assert [record["text"] for record in found] == ["a", "b", "c"]


async def test_a_failed_expectation_is_a_conflict_that_names_the_newest(requester: Requester) -> None:
    first = await requester.append("b", "1", "user/1", expect={"user/1": None})
    path = "/v1/books/b/records"
    reply = await requester.ask("POST", path, {"text": "2", "tags": ["user/1"], "expect": {"user/1": None}})
    assert (reply.status, reply.body["error"]) == (409, "Conflict")
    assert reply.body["facts"]["actual"] == {"user/1": first}
    assert (reply.body["retryable"], reply.body["definite"]) == (False, True)
    for expect in ({"user/1": first, "~0": first}, {"user/1": int(first)}):
        reply = await requester.ask("POST", path, {"text": "3", "expect": expect})
        assert reply.status == 201, reply


async def test_a_session_sees_through_another_gateway_what_it_saw_here(requester: Requester) -> None:
    path = "/v1/books/b/records"
    token = (await requester.ask("POST", path, {"text": "1"})).headers["Boki-Session"]
    other = requester.client.session(token)
    assert other.session_token() == token
    found = await requester.ask("GET", f"{path}/tail", headers={"Boki-Session": token})
    assert found.body["record"] is not None
    wrong = await requester.ask("GET", f"{path}/tail", headers={"Boki-Session": "boki1.x"})
    assert (wrong.status, wrong.body["error"]) == (400, "InvalidArgument")


async def test_names_of_every_kind(requester: Requester) -> None:
    usual = (("a%2Fb%20c", "a/b c"), ("~42", 42), ("~~x", "~x"), ("%C3%BC", "ü"))
    for written, book in (
        *usual,
        ("order%7B7%7D", "order{7}"),
        ("%7B", "{"),
        ("%7Bbook%7D", "{book}"),
        ("a%25b.", "a%b."),
    ):
        reply = await requester.ask("POST", f"/v1/books/{written}/records", {"text": "x", "tags": ["~~t", "~7", 8]})
        assert reply.status == 201, reply
        record = await requester.client.book(book).check_tail()
        assert record is not None
        assert record.tags == ("~t", 7, 8)
        found = (await requester.get(reply.headers["Location"])).body["record"]
        assert found["tags"] == ["~~t", "~7", "~8"]


async def test_what_is_not_there_is_said(requester: Requester) -> None:
    missing = await requester.get("/v1/books/b/records/5")
    assert (missing.status, missing.body["error"], missing.body["facts"]) == (404, "NoSuchRecord", {"seqnum": "5"})


async def test_a_named_writer_applies_a_number_once(requester: Requester) -> None:
    path = "/v1/books/b/records"

    async def last() -> int:
        reply = await requester.get("/v1/books/b/writers/w%2F1")
        assert reply.body["writer"] == "w/1"
        found: int = reply.body["last"]
        return found

    assert await last() == 0
    sent = {"text": "once", "writer": "w/1", "number": 1}
    first = await requester.ask("POST", path, sent)
    again = await requester.ask("POST", path, sent)
    assert (first.status, again.status) == (201, 201)
    assert first.body["seqnum"] == again.body["seqnum"]
    assert await last() == 1
    reused = await requester.ask("POST", path, {**sent, "text": "another"})
    assert (reused.status, reused.body["error"]) == (409, "NumberReused")
    hole = await requester.ask("POST", path, {**sent, "number": 3})
    assert (hole.status, hole.body["facts"]) == (400, {"expected": 2, "found": 3})
    second = await requester.ask("POST", path, {**sent, "number": 2})
    assert second.status == 201
    records = (await requester.get(path, encoding="text")).body["records"]
    assert [record["text"] for record in records] == ["once", "once"]


async def test_a_large_batch_holds_up_no_other_request(requester: Requester) -> None:
    batch = [{"text": "x", "tags": [f"{at}/{tag}/".ljust(200, "t") for tag in range(60)]} for at in range(400)]
    large = asyncio.ensure_future(requester.ask("POST", "/v1/books/theirs/records/batch", {"records": batch}))
    mine = [await requester.append("mine", str(number)) for number in range(3)]
    assert mine == sorted(mine) and len((await large).body["seqnums"]) == len(batch)
    assert requester.client._connection is not None
    assert requester.client._connection.attempts.fault is None, "the connection of all never ended"


async def test_a_number_that_is_under_way_is_answered_once_it_is_decided(
    cluster: MemoryCluster, requester: Requester
) -> None:
    """So a client that gave up waiting may ask again."""
    sent = {"text": "pay", "writer": "w", "number": 1}
    held, free = asyncio.Event(), asyncio.Event()

    def refuse(name: str) -> None:
        if name == "append" and not free.is_set():
            held.set()
            raise Overloaded("not now")

    cluster.before_each = refuse
    first = asyncio.ensure_future(requester.ask("POST", "/v1/books/b/records", sent))
    await held.wait()
    again = asyncio.ensure_future(requester.ask("POST", "/v1/books/b/records", sent))
    other = await requester.ask("POST", "/v1/books/b/records", {**sent, "text": "another"})
    assert (other.status, other.body["error"]) == (409, "NumberReused")
    assert not again.done()
    free.set()
    assert (await first).body["seqnum"] == (await again).body["seqnum"]
    records = (await requester.get("/v1/books/b/records", encoding="text")).body["records"]
    assert [record["text"] for record in records] == ["pay"]


async def test_a_writer_whose_name_has_braces(requester: Requester) -> None:
    body = {"text": "x", "writer": "w{1}", "number": 1}
    assert (await requester.ask("POST", "/v1/books/%7Bb%7D/records", body)).status == 201
    reply = await requester.get("/v1/books/%7Bb%7D/writers/w%7B1%7D")
    assert reply.status == 200 and reply.body["last"] == 1


async def test_a_session_does_not_keep_the_writers_it_met(requester: Requester) -> None:
    """It may live for months, and the SDK keeps each writer of a book for as long as the book is used."""
    path = "/v1/books/b/records"
    token = (await requester.ask("POST", path, {"text": "", "writer": "w", "number": 1})).headers["Boki-Session"]
    headers = {"Boki-Session": token}
    reply = await requester.ask("POST", path, {"text": "", "writer": "w", "number": 2}, headers=headers)
    assert not requester.client.book("b")._writers
    found = await requester.ask("GET", f"{path}/tail", headers={"Boki-Session": reply.headers["Boki-Session"]})
    assert found.body["record"]["seqnum"] == reply.body["seqnum"], "what was appended is in the session"
    assert reply.headers["Boki-Session"] != token


async def test_what_is_trimmed_is_gone_and_said(requester: Requester) -> None:
    seqnums = [await requester.append("b", str(number), "t") for number in range(4)]
    reply = await requester.ask("POST", "/v1/books/b/trim", {"pairs": [{"before": seqnums[2], "tag": "t"}]})
    assert (reply.status, set(reply.body)) == (200, {"position"})
    gone = await requester.get(f"/v1/books/b/records/{seqnums[0]}")
    assert gone.status in (404, 410)
    page = (await requester.get("/v1/books/b/records", tag="t", start=seqnums[0])).body
    assert page["gaps"] == [{"kind": "trimmed", "first": seqnums[0], "last": str(int(seqnums[2]) - 1)}]
    assert [record["seqnum"] for record in page["records"]] == seqnums[2:]
    first = (await requester.get("/v1/books/b/records", tag="t", start=seqnums[0], limit="1")).body
    assert (first["records"], first["next"], first["more"]) == ([], seqnums[2], True), "a gap counts as a record"
    below = await requester.get("/v1/books/b/records/next", tag="t", at_least=seqnums[0])
    assert (below.status, below.body["error"], below.body["facts"]["mark"]) == (410, "Trimmed", seqnums[2])
    bad = await requester.ask("POST", "/v1/books/b/trim", {"pairs": [{"before": "x"}]})
    assert "pairs[0].before: expected decimal digits" in bad.body["message"]


async def test_cached_data_beside_a_record(requester: Requester) -> None:
    seqnum = await requester.append("b", "x")
    path = f"/v1/books/b/records/{seqnum}"
    assert "aux" not in (await requester.get(path)).body["record"]
    assert (await requester.ask("PUT", f"{path}/aux", {"text": "cached"})).body == {"stored": True}
    assert (await requester.get(path)).body["record"]["aux"] == b64encode(b"cached").decode()
    assert (await requester.ask("PUT", "/v1/books/b/records/5/aux", {"text": "x"})).body == {"stored": False}


async def test_reading_from_a_time_on(requester: Requester) -> None:
    await requester.append("b", "x")
    record = (await requester.get("/v1/books/b/records/tail")).body["record"]
    found = (await requester.get(f"/v1/books/b/seek/{record['time_ms']}")).body["seqnum"]
    assert (await requester.get("/v1/books/b/records/next", at_least=found)).body["record"] == record
    later = (await requester.get(f"/v1/books/b/seek/{record['time_ms'] + 10**9}")).body["seqnum"]
    assert int(later) > int(record["seqnum"])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "expected either `data` (base64) or `text`, found neither"),
        ({"text": "x", "data": "eA=="}, "found both"),
        ({"data": "?"}, "data: expected base64 with its padding"),
        ({"text": 7}, "found: Expected `str | null`, got `int` - at `$.text`"),
        ({"text": "x", "writer": "w"}, "expected `writer` and `number`, or neither, found `writer` only"),
        ({"text": "x", "number": 1}, "found `number` only"),
        ({"text": "x", "writer": "w", "number": 0}, "Expected `int` >= 1 - at `$.number`"),
        ({"text": "x", "tag": "y"}, "unknown field `tag`"),
        ({"text": "x", "tags": ["~x"]}, "tags: expected a name, or ~ and the digits"),
        ({"text": "x", "tags": ["a", "a"]}, "given twice"),
        ({"text": "x", "expect": {"a": "-1"}}, "expect['a']: expected decimal digits, found '-1'"),
        ({"text": "x", "expect": {"a": 2**62}}, "in what this session has seen"),
    ],
)
async def test_bad_bodies_are_named(requester: Requester, body: object, message: str) -> None:
    reply = await requester.ask("POST", "/v1/books/b/records", body)
    assert reply.status == 400
    assert message in reply.body["message"]
    assert (await requester.get("/v1/books/b/records/tail")).body["record"] is None


async def test_a_bad_line_of_a_batch_is_named(requester: Requester) -> None:
    headers = {"Content-Type": "application/x-ndjson"}
    reply = await requester.ask("POST", "/v1/books/b/records/batch", data=b'{"text": "a"}\n{"txt": 1}', headers=headers)
    assert (reply.status, reply.body["facts"]["line"]) == (400, 2)
    assert "line 2:" in reply.body["message"]
    reply = await requester.ask("POST", "/v1/books/b/records/batch", {"records": [{"text": "a"}, {"data": "!"}]})
    assert "records[1]: data" in reply.body["message"]
    assert (await requester.get("/v1/books/b/records/tail")).body["record"] is None, "all are checked before the first"
