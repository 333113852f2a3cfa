"""What is put into a tree of elements is text, whatever it is: a browser's own parser would find no element in it."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_gateway.pages.markup import address, make, put, render

EVIL = [
    "<b>",
    "</p><script>x</script>",
    '"><img src=x onerror=a>',
    "'",
    "&lt;",
    "&#60;b&#62;",
    "<!--",
    "]]>",
    "\x00",
    "a\nb",
]
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r")) | st.sampled_from(EVIL)


class Found(HTMLParser):
    """The tags, attributes and texts that a parser of HTML sees."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@given(TEXTS, TEXTS)
def test_texts_and_attributes_stay_what_they_are(text: str, value: str) -> None:
    found = Found(render(make("p", text, make("b", text, title=value), text)))
    assert [tag for tag, _ in found.tags] == ["p", "b"]
    assert found.text == text * 3
    assert found.tags[1][1] == {"title": value}


def test_names_of_attributes() -> None:
    made = make("label", "x", class_="a", for_="b", data_key=5, hidden=True, required=False, title=None)
    assert render(made) == '<label class="a" for="b" data-key="5" hidden="">x</label>'
    assert render(make("div", make("input", value="<"), "after", None)) == '<div><input value="<">after</div>'


@pytest.mark.parametrize("name", ["script", "style"])
def test_what_would_be_taken_as_it_is_gets_no_text(name: str) -> None:
    with pytest.raises(AssertionError):
        make(name, "alert(1)")
    assert render(make(name, src="/x.js")) == f'<{name} src="/x.js"></{name}>'


def test_an_element_has_one_place() -> None:
    one = make("b")
    put(make("p"), [one, "after"])
    with pytest.raises(AssertionError):
        put(make("p"), [one])


def test_addresses() -> None:
    assert (
        address("/pages/x", book="a&b=c", object="ü/<", at=None, n=5)
        == "/pages/x?book=a%26b%3Dc&object=%C3%BC%2F%3C&n=5"
    )
    assert address("/pages/x", at=None) == "/pages/x"
