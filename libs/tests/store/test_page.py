"""The page of objects over HTTP, read as a browser without JavaScript would: what is shown, for whom, and that names stay text."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from urllib.parse import parse_qs, urlsplit

import pytest

from boki.testing import MemoryCluster
from boki_gateway.testing import Requester, running_gateway
from bokilib.records.tags import store_object
from bokistore import BokiStore, Inc
from bokistore_tools.page import PAGE, RECENT_RECORDS, VERSIONS
from libs.tests.html_page import Page
from libs.tests.store.conftest import Another

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&amp;\x1b[31m\u202e"


@pytest.fixture
async def requester(cluster: MemoryCluster) -> AsyncIterator[Requester]:
    async with running_gateway(cluster, pages=(PAGE,)) as one:
        yield one


class PageText(Page):
    """A page of objects, with the queries of its links."""

    def __init__(self, html: str) -> None:
        super().__init__(html)
        self.html = html

    def queries(self) -> list[dict[str, str]]:
        """Return the queries of its links to pages of objects."""
        found = [urlsplit(link) for link in self.links]
        return [
            {name: values[0] for name, values in parse_qs(link.query).items()}
            for link in found
            if link.path == "/pages/store"
        ]


async def look(requester: Requester, status: int = 200, **query: str) -> PageText:
    return await look_at(requester, query, status)


async def look_at(requester: Requester, query: dict[str, str], status: int = 200) -> PageText:
    reply = await requester.get("/pages/store", **query)
    assert reply.status == status, reply.body.decode()
    return PageText(reply.body.decode())


async def test_without_a_book_it_asks_for_one(requester: Requester) -> None:
    shown = await look(requester)
    assert "A store is a book of JSON objects" in shown.text
    assert re.search(r'<label>Book<input [^>]*name="book"[^>]*required=""', shown.main)
    assert 'value="cart"' in (await look(requester, object="cart", book="")).main, "what was asked stays in the form"


async def test_a_book(requester: Requester, store: BokiStore) -> None:
    await store.collection("user", dict).create("ann", {})
    await store.object("cart").inc("n")
    await store.delete("cart")
    shown = await look(requester, book="shop")
    assert {"book": "shop", "object": "cart"} in shown.queries()
    assert {"book": "shop", "object": "user/ann"} in shown.queries()
    assert {"book": "shop", "collection": "user"} in shown.queries()
    assert shown.text.index("cart deleted") < shown.text.index("user/ann transaction"), "the newest first"
    assert "Of all 3 records of the book." in shown.text
    start = await store.log.book.now() + 1
    assert f'data-events="/v1/books/shop/events?start={start}"' in shown.main
    empty = await look(requester, book="nothing")
    assert "The book has no records." in empty.text and "No object was met." in empty.text


async def test_a_book_of_which_not_all_is_looked_at(requester: Requester, store: BokiStore) -> None:
    for _ in range(RECENT_RECORDS + 1):
        await store.object("cart").send(Inc("n", 1))
    assert f"Of the newest {RECENT_RECORDS} records." in (await look(requester, book="shop")).text


async def test_a_collection_page_by_page(
    requester: Requester, store: BokiStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bokistore_tools.page.IDS", 2)
    for id in ("c", "a", "b"):
        await store.collection("user", dict).create(id, {})
    first = await look(requester, book="shop", collection="user")
    assert "A collection of the book shop" in first.text
    assert "2 of 3 ids a b Next" in first.text
    assert {"book": "shop", "object": "user/a"} in first.queries()
    behind = {"book": "shop", "collection": "user", "after": "b"}
    assert behind in first.queries()
    second = await look_at(requester, behind)
    assert "1 of 3 ids, from behind b c" in second.text and behind not in second.queries()
    assert "There is none." in (await look(requester, book="shop", collection="nobody")).text
    await look(requester, 400, book="shop", collection="a/b")


async def test_an_object_its_history_and_what_its_newest_version_changed(
    requester: Requester, store: BokiStore
) -> None:
    cart = store.object("cart")
    await cart.set("owner", "ann")
    async with store.transaction() as tx:
        tx["cart"].set("owner", "bob")
        tx["cart"].push("lines", 1, limit=5)
    shown = await look(requester, book="shop", object="cart")
    first, second = (version.seqnum for version in await cart.history())
    assert "State exists" in shown.text and f"Last record {second}" in shown.text
    assert "set owner bob" in shown.text.replace('"', "") and "push lines 1 limit 5" in shown.text
    assert shown.text.index(f"transaction {second}") < shown.text.index(f"operations {first}"), "the newest first"
    assert f"What changed from {second - 1} to {second}" in shown.text
    assert '~ changed owner "ann" "bob"' in shown.text and "+ made lines [1]" in shown.text
    assert f'The object at {second} {{ "owner": "bob", "lines": [ 1 ] }}' in shown.text
    position = await store.log.book.now()
    assert f"events?tag=store%2Fo%2Fcart&amp;start={position + 1}" in shown.main


async def test_one_version_and_two(requester: Requester, store: BokiStore) -> None:
    cart = store.object("cart")
    for _ in range(3):
        await cart.inc("n")
    first, second, third = (version.seqnum for version in await cart.history())
    one = await look(requester, book="shop", object="cart", at=str(second))
    assert f"from {second - 1} to {second}" in one.text and "~ changed n 1 2" in one.text
    assert "An object of the book shop . Show the newest" in one.text
    assert {"book": "shop", "object": "cart"} in one.queries()
    assert "newest" not in (await look(requester, book="shop", object="cart")).text.replace("newest first", "")
    assert f'id="after-{second}" checked=""' in one.main and f'id="before-{first}" checked=""' in one.main
    for before, after in ((first, third), (third, first)):
        two = await look(requester, book="shop", object="cart", before=str(before), after=str(after))
        assert f"from {first} to {third}" in two.text and "~ changed n 1 3" in two.text
    until_now = await look(requester, book="shop", object="cart", before=str(first))
    assert "~ changed n 1 3" in until_now.text
    same = await look(requester, book="shop", object="cart", before=str(third), after=str(third))
    assert "Nothing changed." in same.text


async def test_what_is_not_there(requester: Requester, store: BokiStore) -> None:
    shown = await look(requester, book="shop", object="never")
    assert "State never seen" in shown.text and "No record of it is kept." in shown.text
    await store.object("cart").inc("n")
    await store.delete("cart")
    shown = await look(requester, book="shop", object="cart")
    assert "State deleted" in shown.text and "There is none." in shown.text
    assert '- (object) {"n":1}' in shown.text.replace("−", "-").replace("removed ", "")


async def test_versions_are_shown_some_at_a_time(requester: Requester, store: BokiStore) -> None:
    cart = store.object("cart")
    seqnums = [await cart.send(Inc("n", 1)) for _ in range(VERSIONS + 3)]
    newest = await look(requester, book="shop", object="cart")
    assert newest.main.count('class="choice"') == VERSIONS
    (older,) = [link for link in newest.queries() if "until" in link]
    assert older["until"] == str(seqnums[2])
    rest = await look_at(requester, older)
    assert rest.main.count('class="choice"') == 3
    assert f"to {seqnums[2]}" in rest.text and "~ changed n 2 3" in rest.text


async def test_where_the_past_is_trimmed(requester: Requester, store: BokiStore) -> None:
    cart = store.object("cart")
    for _ in range(3):
        await cart.inc("n")
    assert await store.checkpointer.checkpoint("cart")
    seen = (await cart.view()).seen
    await cart.send(Inc("n", 10))
    first = (await cart.history())[0].seqnum
    await store.log.book.trim([(store_object("cart"), seen)])
    shown = await look(requester, book="shop", object="cart")
    assert "checkpoint" in shown.text and "~ changed n 3 13" in shown.text
    oldest = (await cart.history())[0].seqnum
    known = await look(requester, book="shop", object="cart", at=str(oldest))
    assert f"What was before {oldest} is not kept any more." in known.text and '{ "n": 3 }' in known.text
    gone = await look(requester, 410, book="shop", object="cart", at=str(first))
    assert "Trimmed" in gone.text


async def test_names_and_values_are_text(requester: Requester, another: Another) -> None:
    store = BokiStore((await another()).log.book)
    await store.object(EVIL).set(EVIL.replace(".", ""), {EVIL: [EVIL]})
    await store.collection(EVIL.replace("/", ""), dict).create(EVIL, {})
    plain = await look(requester, book="shop")
    pages = [plain]
    for link in plain.queries():
        pages.append(await look_at(requester, link))
    pages.append(await look(requester, book="shop", object=EVIL, before="1"))
    pages.append(await look(requester, book=EVIL, object=EVIL))
    pages.append(await look(requester, 400, book="shop", object=EVIL, at=EVIL))
    assert len(pages) > 5
    for page in pages:
        names, attributes = page.elements, page.attributes
        assert not names & {"script", "img"}
        assert not any(name.startswith("on") for name in attributes)
        assert not {"\x1b", "\u202e"} & set(page.text), "what is read moves no cursor and turns no line"
    assert any(link.get("object") == EVIL for link in plain.queries()), "links lead to exactly that object"


async def test_a_book_that_is_a_number(requester: Requester, cluster: MemoryCluster) -> None:
    store = BokiStore((await cluster.connect()).book(42))
    await store.object("x").inc("n")
    shown = await look(requester, book="~42", object="x")
    assert "inc n 1" in shown.text and 'data-events="/v1/books/~42/events?' in shown.main
    await look(requester, 400, book="~x", object="x")


async def test_large_values_are_cut_with_a_note(requester: Requester, store: BokiStore) -> None:
    await store.object("x").set("", {f"{number:06}": number for number in range(10_000)})
    shown = await look(requester, book="shop", object="x")
    assert "`boki store get` prints all" in shown.text
    assert len(shown.main) < 200_000
    await store.object("x").set("", {f"{number:06}": -number for number in range(10_000)})
    shown = await look(requester, book="shop", object="x")
    assert "and 9,699 more changes" in shown.text


async def test_it_appends_nothing(requester: Requester, store: BokiStore) -> None:
    for _ in range(20):
        await store.object("x").inc("n")
    before = await store.log.book.read_prev()
    assert before is not None
    for query in ({"book": "shop"}, {"book": "shop", "object": "x"}, {"book": "shop", "collection": "c"}):
        await look_at(requester, query)
    after = await store.log.book.read_prev()
    assert after is not None and after.seqnum == before.seqnum
