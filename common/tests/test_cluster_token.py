"""The cluster token: what a file may hold, what is accepted, and that nothing tells it to anybody."""

from __future__ import annotations

import hmac
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common.cluster_token import NO_TOKEN, ClusterToken, parse
from boki_common.errors import SettingsError, Unauthenticated

OLD = "old-token-0123456789abcdef"
NEW = "new-token-0123456789abcdef"
TOKENS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=16, max_size=64)


@pytest.mark.parametrize("text", [OLD, f"{OLD}\n", f"\n  {OLD}\t\r\n\n", f"{OLD}\n{OLD}\n"])
def test_one_line_is_one_token(text: str) -> None:
    token = parse(text, "a file")
    assert (token.shown, token.valid, token.asks) == (OLD, 1, True)


def test_of_two_lines_both_are_accepted_and_the_first_is_shown() -> None:
    token = parse(f"{NEW}\n{OLD}\n", "a file")
    assert token.shown == NEW
    assert token.accepts(NEW) and token.accepts(OLD) and token.accepts(OLD.encode())
    assert not token.accepts(OLD[:-1])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "found nothing"),
        ("\n \n", "found nothing"),
        (f"{OLD}\n{NEW}\n{OLD}x", "found 3 lines"),
        ("short-of-sixteen", ""),
        ("fifteen-letters", "found 15"),
        ("x" * 513, "found 513"),
        (f"{OLD}\nshort", "line 2: expected a cluster token of 16 to 512 characters, found 5"),
        ("sixteenletters withablank", "other characters"),
        ("sixteen-letters-\x07-bell", "other characters"),
        ("sechzehn-Zeichen-für-alle", "other characters"),
    ],
)
def test_what_is_no_token_is_refused_with_what_was_found_and_without_the_text(text: str, found: str) -> None:
    if not found:
        assert parse(text, "a file").shown == text  # sixteen are enough
        return
    with pytest.raises(SettingsError, match="expected a cluster token") as refused:
        parse(text, "the file")
    message = str(refused.value)
    assert found in message and message.startswith("the file")
    for line in text.split():
        assert line not in message


@given(TOKENS, TOKENS, st.one_of(TOKENS, st.text(max_size=40), st.binary(max_size=40)))
def test_exactly_the_valid_tokens_are_accepted(first: str, second: str, shown: str | bytes) -> None:
    token = parse(f"{first}\n{second}", "a file")
    given_bytes = shown.encode("utf-8", "surrogatepass") if isinstance(shown, str) else shown
    assert token.accepts(shown) is (given_bytes in (first.encode(), second.encode()))
    assert token.accepts(first) and token.accepts(second)


def test_every_valid_token_is_compared_in_constant_time_whichever_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    token = parse(f"{NEW}\n{OLD}", "a file")
    compared: list[tuple[Any, Any]] = []
    real = hmac.compare_digest

    def noted(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return real(one, other)

    monkeypatch.setattr(hmac, "compare_digest", noted)
    for shown in (NEW, OLD, "neither of them"):
        compared.clear()
        token.accepts(shown)
        assert len(compared) == 2


@pytest.mark.parametrize("shown", [None, "", b""])
def test_without_a_token_the_error_says_that_one_is_needed_and_how_to_show_it(shown: object) -> None:
    with pytest.raises(
        Unauthenticated, match=r"this engine asks for a cluster token, and none was shown.*--token-file"
    ) as no:
        parse(OLD, "a file").admit(shown, "this engine")
    assert no.value.definite and not no.value.retryable


@pytest.mark.parametrize("shown", [NEW, NEW.encode(), OLD + " ", 7, [OLD], {"token": OLD}])
def test_with_another_token_the_error_says_so_and_contains_neither(shown: object) -> None:
    with pytest.raises(Unauthenticated, match="was shown one that is not valid there") as no:
        parse(OLD, "a file").admit(shown, "this engine")
    assert OLD not in str(no.value) + repr(no.value.facts) and NEW not in str(no.value) + repr(no.value.facts)


@pytest.mark.parametrize("shown", [None, "", OLD, b"anything", 7])
def test_a_cluster_without_a_token_admits_everybody_also_who_shows_one(shown: object) -> None:
    NO_TOKEN.admit(shown, "this engine")
    assert (NO_TOKEN.asks, NO_TOKEN.shown, NO_TOKEN.accepts("")) == (False, None, True)


def test_renewed_in_place_it_is_what_the_file_holds_now() -> None:
    token = parse(OLD, "a file")
    assert token.renew(parse(f"{OLD}\n{NEW}", "a file"))
    assert token.shown == OLD and token.accepts(NEW)
    assert token.renew(parse(NEW, "a file"))
    assert token.shown == NEW and not token.accepts(OLD)
    assert not token.renew(parse(NEW, "a file"))


def test_neither_repr_nor_str_nor_a_format_nor_a_pickle_has_the_token() -> None:
    token = parse(f"{OLD}\n{NEW}", "a file")
    for text in (repr(token), str(token), f"{token}", f"{token!r}", "%s" % token):  # noqa: UP031 - all ways to text
        assert OLD not in text and NEW not in text
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(token)
    assert not hasattr(token, "__dict__")


def test_no_more_than_two_are_valid_at_once() -> None:
    with pytest.raises(AssertionError, match="successor"):
        ClusterToken([OLD, NEW, OLD])
