"""Schemathesis reads the OpenAPI document and asks what it allows: nothing of it is refused for its form, nothing is a fault.

Requests that the document does not allow are made too: they are refused or taken, and never a fault. The examples are the same
in every run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any, Final

import msgspec
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from boki.testing import MemoryCluster
from boki_common.ids import U64_MAX
from boki_common.runtime.loop_thread import LoopThread
from boki_gateway import openapi
from boki_gateway.calls.book_routes import BOOK_ROUTES
from boki_gateway.calls.call import EVENTS
from boki_gateway.server import ROUTES
from boki_gateway.testing import running_gateway

EXAMPLES: Final = 15
"""Of each operation, in either mode: a few seconds for all."""
FORM_STATUSES: Final = frozenset({400, 411, 412, 414, 415, 417, 422, 431})
"""The request is refused for what it looks like."""
ABOUT_THE_LOG: Final = (
    "use the seqnum of a record it read",
    "or None for the newest there is",
    "its numbers have no holes",
)
"""Refusals of 400 for what the log holds, which no form tells: seqnums that nobody saw yet, numbers out of turn."""
CHECKS: Final = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    allow_header_conformance,
]
DOCUMENT: Final[dict[str, Any]] = msgspec.json.decode(msgspec.json.encode(openapi.document(ROUTES)))
NAMES: Final = [route.name for route in ROUTES if route.group != "pages"]

_token: list[str] = []
_http: Final = requests.Session()

_TEXTS: Final = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=70)
_NAMES: Final = _TEXTS | st.integers(0, U64_MAX).map(lambda number: f"~{number}")
"""Quickly made; of them Schemathesis keeps those that fit the pattern."""

schemathesis.openapi.format("boki-session", st.builds(lambda: _token[0]))
schemathesis.openapi.format("boki-writer", _TEXTS)
for _kind in ("book", "tag", "stream"):
    schemathesis.openapi.format(f"boki-{_kind}", _NAMES)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A gateway on a cluster in memory, in a loop of its own: Schemathesis asks as programs do, and waits."""
    thread, stack = LoopThread("gateway"), AsyncExitStack()

    async def start() -> str:
        cluster = await stack.enter_async_context(MemoryCluster())
        requester = await stack.enter_async_context(running_gateway(cluster, call_timeout_s=0.3))
        await requester.append("b", "first", "t")
        _token[:] = [requester.client.session_token()]
        return requester.url

    yield thread.run(start())
    thread.run(stack.aclose())
    thread.stop()


def whole(value: Any) -> Any:
    """7.0 as 7: to JSON Schema they are one integer, and clients send it without a point, as the gateway wants it."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [whole(inner) for inner in value]
    return {key: whole(inner) for key, inner in value.items()} if isinstance(value, dict) else value


@contextmanager
def answered(url: str, case: schemathesis.Case[Any]) -> Iterator[requests.Response]:
    """The answer to a case; of a stream only its beginning."""
    if case.query and "wait" in case.query:
        case.query["wait"] = 0
    case.body = whole(case.body)
    with _http.request(**case.as_transport_kwargs(base_url=url), stream=True) as answer:
        if answer.headers.get("Content-Type", "").startswith(EVENTS):
            assert next(answer.iter_content(64)).startswith(b"retry: ")
            answer.raw.close()
            answer._content = b""
        yield answer


def bounded(examples: int) -> settings:
    return settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )


def operation_of(name: str) -> Any:
    return schemathesis.openapi.from_dict(DOCUMENT).find_operation_by_id(name)


@pytest.mark.parametrize("name", NAMES)
def test_what_the_document_allows_is_not_refused_for_its_form(url: str, name: str) -> None:
    operation = operation_of(name)

    @bounded(EXAMPLES)
    @given(case=operation.as_strategy(generation_mode=schemathesis.GenerationMode.POSITIVE))
    def ask(case: schemathesis.Case[Any]) -> None:
        with answered(url, case) as answer:
            if answer.status_code in FORM_STATUSES:
                assert any(reason in answer.text for reason in ABOUT_THE_LOG), (case.as_curl_command(), answer.text)
            case.validate_response(answer, checks=CHECKS)

    ask()


@pytest.mark.parametrize("name", [route.name for route in BOOK_ROUTES])
def test_what_it_does_not_allow_is_no_fault(url: str, name: str) -> None:
    operation = operation_of(name)

    @bounded(EXAMPLES)
    @given(case=operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE))
    def ask(case: schemathesis.Case[Any]) -> None:
        with answered(url, case) as answer:
            case.validate_response(answer, checks=[not_a_server_error, content_type_conformance])

    ask()
