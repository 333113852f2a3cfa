"""Options of a URL of engines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common.engine.engine_url import EngineUrl, split_options, with_token_file
from boki_common.errors import InvalidArgument


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("boki://host:7040", EngineUrl("boki://host:7040")),
        ("boki://host?token_file=/etc/token", EngineUrl("boki://host", "/etc/token")),
        ("boki://a:1,b:2?token_file=t", EngineUrl("boki://a:1,b:2", "t")),
        ("unix:///run/boki?token_file=/a%20b", EngineUrl("unix:///run/boki", "/a b")),
    ],
)
def test_the_token_file_is_taken_off_the_url(url: str, expected: EngineUrl) -> None:
    assert split_options(url) == expected


@pytest.mark.parametrize(
    "options", ["", "token=secret-0123456789abc", "token_file=", "token_file=a&token_file=b", "x=1&token_file=a"]
)
def test_what_is_no_option_is_refused_by_its_name_and_without_its_value(options: str) -> None:
    with pytest.raises(InvalidArgument, match=r"expected \?token_file=/path") as refused:
        split_options(f"boki://host?{options}")
    assert "secret" not in str(refused.value)


@given(st.text(min_size=1).filter(lambda text: "\x00" not in text and text.isprintable()))
def test_every_path_survives_the_url(path: str) -> None:
    assert split_options(with_token_file("boki://a:1,b:2", path)) == EngineUrl("boki://a:1,b:2", path)


def test_without_a_file_a_url_stays_as_it_is() -> None:
    assert with_token_file("boki://a:1", "") == "boki://a:1"
