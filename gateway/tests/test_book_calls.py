"""The LogBook API over HTTP says what the SDK says, in JSON."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from boki_gateway.testing import Asker


async def test_what_is_appended_is_read(asker: Asker) -> None:
    reply = await asker.ask("POST", "/v1/books/orders/records", {"text": "two apples", "tags": ["user/1", 42]})
    seqnum = reply.body["seqnum"]
    assert (reply.status, reply.headers["Location"]) == (201, f"/v1/books/orders/records/{seqnum}")
    assert reply.body["position"] == seqnum
    found = await asker.get(reply.headers["Location"])
    record = found.body["record"]
    assert found.status == 200
    assert record.pop("time_ms") > 0
    assert record == {"seqnum": seqnum, "tags": ["user/1", "~42"], "book": "orders", "data": "dHdvIGFwcGxlcw=="}
    as_text = (await asker.get(f"/v1/books/orders/records/{seqnum}", encoding="text")).body["record"]
    assert as_text["text"] == "two apples"
    assert "data" not in as_text


async def test_bytes_go_in_and_out_as_base64(asker: Asker) -> None:
    data = b64encode(bytes(range(256))).decode()
    appended = await asker.ask("POST", "/v1/books/b/records", {"data": data})
    for encoding in ("base64", "text"):
        found = await asker.get(f"/v1/books/b/records/{appended.body['seqnum']}", encoding=encoding)
        assert found.body["record"]["data"] == data, "what is no UTF-8 stays base64"


async def test_next_prev_and_tail(asker: Asker) -> None:
    one, two, three = [await asker.append("b", text, tag) for text, tag in (("1", "x"), ("2", "y"), ("3", "x"))]

    async def seqnum(call: str, **params: str) -> str | None:
        record = (await asker.get(f"/v1/books/b/records/{call}", **params)).body["record"]
        return None if record is None else str(record["seqnum"])

    assert await seqnum("next") == one
    assert await seqnum("next", at_least=str(int(one) + 1)) == two
    assert await seqnum("next", at_least=str(int(one) + 1), tag="x") == three
    assert await seqnum("next", at_least=str(int(three) + 1)) is None
    assert await seqnum("prev", at_most=str(int(three) - 1), tag="x") == one
    assert await seqnum("tail") == three
    assert await seqnum("tail", tag="y") == two
    assert await seqnum("tail", tag="nobody") is None
    assert await seqnum("tail", consistency="any") == three


async def test_pages_of_a_range_follow_each_other(asker: Asker) -> None:
    seqnums = [await asker.append("b", str(number), "even" if number % 2 == 0 else "odd") for number in range(7)]
    found: list[str] = []
    start = "0"
    pages = 0
    while True:
        page = (await asker.get("/v1/books/b/records", start=start, limit="3")).body
        found += [record["seqnum"] for record in page["records"]]
        start = page["next"]
        pages += 1
        if not page["more"]:
            break
    assert (found, pages) == (seqnums, 3)
    again = (await asker.get("/v1/books/b/records", start=start)).body
    assert (again["records"], again["next"], again["more"]) == ([], start, False)
    some = (await asker.get("/v1/books/b/records", tag="even", start=seqnums[1], stop=seqnums[6])).body
    assert [record["seqnum"] for record in some["records"]] == [seqnums[2], seqnums[4]]


async def test_a_long_poll_wakes_with_the_record(asker: Asker) -> None:
    async def later(path: str, **params: str) -> asyncio.Task[object]:
        before = asker.gateway._parts.admission.requests
        waiting = asyncio.ensure_future(asker.get(path, **params))
        while asker.gateway._parts.admission.requests == before:
            await asyncio.sleep(0)
        return waiting

    for path, name in (("/v1/books/p/records/next", "at_least"), ("/v1/books/p/records", "start")):
        tail = (await asker.get("/v1/books/p/records/tail")).body["record"]
        after = str(int(tail["seqnum"]) + 1) if tail else "0"
        waiting = await later(path, wait="30", **{name: after})
        seqnum = await asker.append("p", "x")
        body = (await waiting).body  # type: ignore[attr-defined]
        record = body["record"] if "record" in body else body["records"][0]
        assert record["seqnum"] == seqnum
    empty = (await asker.get("/v1/books/none/records", wait="0.01")).body
    assert (empty["records"], empty["next"], empty["more"]) == ([], "0", False)


async def test_many_streams_in_one_request(asker: Asker) -> None:
    one = await asker.append("b", "1", "x")
    two = await asker.append("b", "2", "y", "x")
    queries = [{"tag": "x"}, {"tag": "x", "at_most": one}, {"tag": "nobody"}, {}, {"tag": "y", "at_most": int(two)}]
    found = await asker.ask("POST", "/v1/books/b/records/prev-many", {"queries": queries})
    assert [record and record["seqnum"] for record in found.body["records"]] == [two, one, None, two, two]


@pytest.mark.parametrize("kind", ["json", "lines"])
async def test_a_batch_is_appended_in_order(asker: Asker, kind: str) -> None:
    records = [{"text": "a", "tags": ["x"]}, {"data": "Yg=="}, {"text": "c"}]
    if kind == "json":
        reply = await asker.ask("POST", "/v1/books/b/records/batch", {"records": records})
    else:
        lines = b'{"text": "a", "tags": ["x"]}\n\n{"data": "Yg=="}\n{"text": "c"}'
        headers = {"Content-Type": "application/x-ndjson"}
        reply = await asker.ask("POST", "/v1/books/b/records/batch", data=lines, headers=headers)
    assert reply.status == 200
    found = (await asker.get("/v1/books/b/records", encoding="text")).body["records"]
    assert [record["seqnum"] for record in found] == reply.body["seqnums"]
    assert [record["text"] for record in found] == ["a", "b", "c"]


async def test_a_failed_expectation_is_a_conflict_that_names_the_newest(asker: Asker) -> None:
    first = await asker.append("b", "1", "user/1", expect={"user/1": None})
    path = "/v1/books/b/records"
    reply = await asker.ask("POST", path, {"text": "2", "tags": ["user/1"], "expect": {"user/1": None}})
    assert (reply.status, reply.body["error"]) == (409, "Conflict")
    assert reply.body["facts"]["actual"] == {"user/1": first}
    assert (reply.body["retryable"], reply.body["definite"]) == (False, True)
    for expect in ({"user/1": first, "~0": first}, {"user/1": int(first)}):
        reply = await asker.ask("POST", path, {"text": "3", "expect": expect})
        assert reply.status == 201, reply


async def test_a_session_sees_through_another_gateway_what_it_saw_here(asker: Asker) -> None:
    path = "/v1/books/b/records"
    token = (await asker.ask("POST", path, {"text": "1"})).headers["Boki-Session"]
    other = asker.client.session(token)
    assert other.session_token() == token
    found = await asker.ask("GET", f"{path}/tail", headers={"Boki-Session": token})
    assert found.body["record"] is not None
    wrong = await asker.ask("GET", f"{path}/tail", headers={"Boki-Session": "boki1.x"})
    assert (wrong.status, wrong.body["error"]) == (400, "InvalidArgument")


async def test_names_of_every_kind(asker: Asker) -> None:
    for written, book in (("a%2Fb%20c", "a/b c"), ("~42", 42), ("~~x", "~x"), ("%C3%BC", "ü")):
        reply = await asker.ask("POST", f"/v1/books/{written}/records", {"text": "x", "tags": ["~~t", "~7", 8]})
        assert reply.status == 201, reply
        record = await asker.client.book(book).check_tail()
        assert record is not None
        assert record.tags == ("~t", 7, 8)
        found = (await asker.get(reply.headers["Location"])).body["record"]
        assert found["tags"] == ["~~t", "~7", "~8"]


async def test_what_is_not_there_is_said(asker: Asker) -> None:
    missing = await asker.get("/v1/books/b/records/5")
    assert (missing.status, missing.body["error"], missing.body["facts"]) == (404, "NoSuchRecord", {"seqnum": "5"})


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "expected either `data` (base64) or `text`, found neither"),
        ({"text": "x", "data": "eA=="}, "found both"),
        ({"data": "?"}, "data: expected base64 with its padding"),
        ({"text": 7}, "found: Expected `str | null`, got `int` - at `$.text`"),
        ({"text": "x", "tag": "y"}, "unknown field `tag`"),
        ({"text": "x", "tags": ["~x"]}, "tags: expected a name, or ~ and the digits"),
        ({"text": "x", "tags": ["a", "a"]}, "given twice"),
        ({"text": "x", "expect": {"a": "-1"}}, "expect['a']: expected decimal digits, found '-1'"),
        ({"text": "x", "expect": {"a": 2**62}}, "in what this session has seen"),
    ],
)
async def test_bad_bodies_are_named(asker: Asker, body: object, message: str) -> None:
    reply = await asker.ask("POST", "/v1/books/b/records", body)
    assert reply.status == 400
    assert message in reply.body["message"]
    assert (await asker.get("/v1/books/b/records/tail")).body["record"] is None


async def test_a_bad_line_of_a_batch_is_named(asker: Asker) -> None:
    headers = {"Content-Type": "application/x-ndjson"}
    reply = await asker.ask("POST", "/v1/books/b/records/batch", data=b'{"text": "a"}\n{"txt": 1}', headers=headers)
    assert (reply.status, reply.body["facts"]["line"]) == (400, 2)
    assert "line 2:" in reply.body["message"]
    reply = await asker.ask("POST", "/v1/books/b/records/batch", {"records": [{"text": "a"}, {"data": "!"}]})
    assert "records[1]: data" in reply.body["message"]
    assert (await asker.get("/v1/books/b/records/tail")).body["record"] is None, "all are checked before the first"
