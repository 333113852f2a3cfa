"""Pages of libraries in the shell: found by entry points, held by the rules of every page, and never able to take the gateway along."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from importlib.metadata import EntryPoint

import pytest

from boki.testing import MemoryCluster
from boki_common.cluster_token import parse
from boki_common.errors import InvalidArgument, Unreachable
from boki_gateway.pages import library_pages
from boki_gateway.pages.library_pages import HEADERS, installed
from boki_gateway.pages.markup import make
from boki_gateway.pages.pages import GROUP, Content, Live, Page, Visit
from boki_gateway.testing import Requester, running_gateway

TOKEN = "0123456789abcdef-of-the-test"
EVIL = "<script>alert(1)</script>"


async def show(visit: Visit) -> Content:
    """Fails as the query asks."""
    what = visit.text("fail")
    if what == "refuse":
        raise InvalidArgument(f"expected nothing, found {EVIL}")
    if what == "away":
        raise Unreachable("no engine answers")
    if what == "fault":
        raise KeyError(EVIL)
    if what == "hang":
        await asyncio.Event().wait()
    number = visit.whole("n")
    tail = await visit.client.book("b").check_tail()
    said = make("section", f"{visit.text('say')} {number} {tail and tail.data.decode()}", id="said", data_region=True)
    return Content(f"Title {EVIL}", [said], Live("a/b ü", f"t&{EVIL}", 7))


PAGE = Page("toy", "Toys", "Toys of a test.", show, files={"toy.css": b"main { color: red; }"})
PLAIN = Page("plain", "Plain", "Nothing live.", lambda visit: _plain())


async def _plain() -> Content:
    return Content("Plain", [])


@pytest.fixture
async def requester(cluster: MemoryCluster) -> AsyncIterator[Requester]:
    async with running_gateway(cluster, pages=(PAGE, PLAIN), call_timeout_s=1.0) as one:
        yield one


async def test_a_page_in_its_shell(requester: Requester) -> None:
    await requester.append("b", "newest")
    reply = await requester.get("/pages/toy", say=EVIL, n="5")
    html = reply.body.decode()
    assert reply.status == 200
    assert reply.headers["Content-Type"] == "text/html; charset=utf-8"
    for name, value in HEADERS.items():
        assert reply.headers[name] == value
    assert "form-action 'self'" in reply.headers["Content-Security-Policy"]
    assert EVIL not in html
    assert "<h1>Title &lt;script&gt;" in html
    assert '<section id="said" data-region="">&lt;script&gt;alert(1)&lt;/script&gt; 5 newest</section>' in html
    assert (
        'data-events="/v1/books/a%2Fb%20%C3%BC/events?tag=t%26%3Cscript%3Ealert%281%29%3C%2Fscript%3E&amp;start=8"'
        in html
    )
    assert '<a href="/pages/toy" aria-current="page">Toys</a><a href="/pages/plain">Plain</a>' in html
    assert '<link rel="stylesheet" href="/assets/toy/toy.css">' in html
    assert "<noscript>" in html


async def test_what_is_not_live_says_nothing_about_it(requester: Requester) -> None:
    html = (await requester.get("/pages/plain")).body.decode()
    assert "data-events" not in html and 'id="live"' not in html and "<noscript>" not in html


async def test_files(requester: Requester) -> None:
    reply = await requester.get("/assets/toy/toy.css")
    assert (reply.status, reply.body, reply.headers.getone("Content-Type")) == (
        200, PAGE.files["toy.css"], "text/css; charset=utf-8",
    )  # fmt: skip
    assert (await requester.get("/assets/toy/other.css")).status == 404
    assert (await requester.ask("HEAD", "/pages/toy")).status == 200


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ({"fail": "refuse"}, 400, "InvalidArgument</strong>: expected nothing, found &lt;script&gt;"),
        ({"n": "0"}, 400, "n: expected a whole number above 0, found '0'"),
        ({"n": "٣"}, 400, "n: expected a whole number"),
        ({"n": "9" * 30}, 400, "n: expected a whole number"),
        ({"fail": "away"}, 503, "The same may succeed later."),
        ({"fail": "hang"}, 504, "CallTimeout"),
    ],
)
async def test_errors_are_said_in_the_shell(
    requester: Requester, query: dict[str, str], status: int, said: str
) -> None:
    reply = await requester.get("/pages/toy", **query)
    html = reply.body.decode()
    assert (reply.status, said in html) == (status, True), html
    assert EVIL not in html
    assert "<nav" in html


async def test_a_fault_of_a_library_is_its_own(requester: Requester, capsys: pytest.CaptureFixture[str]) -> None:
    reply = await requester.get("/pages/toy", fail="fault")
    assert (reply.status, b"the gateway has a fault" in reply.body) == (500, True)
    assert EVIL.encode() not in reply.body
    assert "a page could not be made" in capsys.readouterr().err
    assert (await requester.get("/pages/plain")).status == 200


async def test_the_rules_of_every_page(requester: Requester, cluster: MemoryCluster) -> None:
    evil = {"Origin": "http://evil.example"}
    assert (await requester.ask("GET", "/pages/toy", headers=evil)).status == 403
    assert (await requester.ask("GET", "/pages/toy", headers={"Host": "evil.example"})).status == 403
    assert (await requester.ask("POST", "/pages/toy")).status == 405
    async with running_gateway(cluster, token=parse(TOKEN, "the test"), pages=(PAGE,)) as closed:
        for path in ("/pages/toy", "/assets/toy/toy.css"):
            assert (await closed.get(path)).status == 401
            shown = {"Authorization": f"Bearer {TOKEN}"}
            assert (await closed.ask("GET", path, headers=shown)).status == 200


async def test_the_gateways_own_pages_lead_to_them(requester: Requester) -> None:
    for path in ("/", "/reference"):
        assert b'<a href="/pages/toy">Toys</a><a href="/pages/plain">Plain</a>' in (await requester.get(path)).body
    paths = (await requester.get("/openapi.json")).body["paths"]
    assert paths["/pages/toy"]["get"]["tags"] == ["pages"]


async def broken() -> None:
    """No page."""


def test_libraries_are_found_and_a_broken_one_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [page.name for page in installed()] == ["flow", "queue", "rsm", "store"]
    entries = [
        EntryPoint("a", "no_such_library:PAGE", GROUP),
        EntryPoint("b", f"{__name__}:broken", GROUP),
        EntryPoint("toy", f"{__name__}:PAGE", GROUP),
        EntryPoint("z", f"{__name__}:PAGE", GROUP),
    ]
    monkeypatch.setattr(library_pages, "entry_points", lambda group: entries if group == GROUP else [])
    assert installed() == (PAGE,)
    said = capsys.readouterr().err
    assert said.count("the page of a library is left out") == 3
    assert "no_such_library" in said and "expected a Page" in said and "there is a page 'toy' already" in said
