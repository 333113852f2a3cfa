"""Queues, their shards, messages and dead letters as elements of a page. Pure.

Names and bodies may come from anybody: they are text in an element or in the value of an attribute, never more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from xml.etree.ElementTree import Element

from boki_gateway.pages.markup import Node, address, make
from boki_gateway.pages.parts import field, moment
from boki_gateway.pages.texts import preview, printable
from bokiqueue.manage.inspection import Peeked, Rates, Stats
from bokiqueue.model.events import Config
from bokiqueue_tools.wording import PREVIEW, consumers_line, error_text, per_second, seconds

PATH: Final = "/pages/queue"


def intro() -> Element:
    """Return the text that introduces the page."""
    return make(
        "p",
        "Queues live in a book. Name the book to see its queues, or a queue to see how many messages wait, for how long, who "
        "consumes them, how fast they come and go, and which became dead letters.",
        class_="intro",
    )


def ask(book: str | None, queue: str | None, group: str | None) -> Element:
    """Return the form that asks for a book, a queue and a group."""
    return make(
        "form",
        make("label", "Book", field("book", book, required=True)),
        make("label", "Queue", field("queue", queue, placeholder="any")),
        make("label", "Group", field("group", group, placeholder="default")),
        make("button", "Show", type="submit"),
        class_="ask panel",
        method="get",
        action=PATH,
        role="search",
    )


def where(book: str) -> Element:
    """Return the line that names the book."""
    return make("p", "A queue of the book ", make("a", printable(book), href=address(PATH, book=book)), class_="intro")


# -- a book


def queues(book: str, found: Sequence[tuple[Config, Stats]], more: int) -> Element:
    """Return the table of all queues, one row a group."""
    dead = {config.dead_letter for config, _ in found}
    rows = [_queue(book, config, stats, dead=config.queue in dead) for config, stats in found]
    note = make("p", f"and {more:,} more queues: name one", class_="note") if more > 0 else None
    names = ("Queue", "Group", "Unfinished", "In flight", "Oldest", "State")
    body: Node = _table("queues", names, rows) if rows else make("p", "The book has no queues.", class_="empty")
    return _section("queues", "Queues", body, note)


def _queue(book: str, config: Config, stats: Stats, *, dead: bool) -> Element:
    group = stats.group or None
    link = make("a", printable(config.queue), href=address(PATH, book=book, queue=config.queue, group=group))
    return make(
        "tr",
        make("th", link, scope="row"),
        _cell("Group", printable(stats.group) or "popped"),
        _number("Unfinished", stats.depth),
        _number("In flight", stats.in_flight),
        _cell("Oldest", seconds(stats.age_ms) if stats.depth else "none", "number"),
        make("td", _state(stats, dead=dead), data_label="State"),
        data_key=f"{config.queue} {stats.group}",
    )


def _state(stats: Stats, *, dead: bool = False) -> Element:
    """Return the state of a group. `dead` says that the queue has dead letters of others, which need no consumers."""
    if stats.paused:
        return make("span", "paused", class_="state warn")
    if stats.unopened:
        return make("span", f"{stats.unopened} cannot be opened", class_="state warn")
    if not stats.depth:
        return make("span", "empty", class_="state idle")
    if stats.consumed or stats.mode == "pop":
        return make("span", "is consumed", class_="state good")
    if dead:
        return make("span", "keeps dead letters", class_="state idle")
    return make("span", "no consumers", class_="state warn")


# -- a queue


def sources(found: Sequence[Peeked]) -> list[str]:
    """Return the queues that these messages are dead letters of, by name."""
    return sorted({one.source.queue for one in found if one.source is not None})


def facts(config: Config, stats: Stats, rates: Rates, of: Sequence[str] = ()) -> Element:
    """Return the facts of a group. `of` are the queues whose dead letters it has."""
    consumers = consumers_line(stats)
    if of and not stats.consumed:
        consumers = "none, as is usual for dead letters: look at them here; `boki queue redrive` sends them back"
    rows: list[tuple[str, Node]] = [
        ("State", _state(stats, dead=bool(of))),
        *([("Dead letters of", ", ".join(map(printable, of)))] if of else []),
        ("Unfinished", f"{stats.depth:,}"),
        ("In flight", f"{stats.in_flight:,}"),
        ("Delayed", f"{stats.delayed:,}"),
        *([("Consumers", consumers)] if stats.mode == "consume" else []),
        ("Oldest", seconds(stats.age_ms) if stats.depth else "none"),
        ("Pushed", per_second(rates.pushed_per_s)),
        ("Done", per_second(rates.done_per_s)),
    ]
    if rates.span_ms:
        rows.append(("Rates of the last", seconds(rates.span_ms)))
    if config.key_rates:
        rows.append(("Keys with a rate of their own", f"{len(config.key_rates):,}"))
    if config.dead_letter is not None:
        rows.append(("Dead letters to", printable(config.dead_letter)))
    made = [make("div", make("dt", name), make("dd", value)) for name, value in rows]
    return make("dl", *made, id="facts", class_="facts", data_region=True)


def shards(stats: Stats) -> Element:
    """Return the table of shards and their owners."""
    rows = [
        make(
            "tr",
            make("th", f"shard {one.shard}", scope="row"),
            _cell("Owner", printable(one.owner) or "no owner"),
            _number("Unfinished", one.depth),
            _number("In flight", one.in_flight),
            _number("Delayed", one.delayed),
            data_key=str(one.shard),
        )
        for one in stats.shards
    ]
    body = _table("queues", ("Shard", "Owner", "Unfinished", "In flight", "Delayed"), rows)
    return _section("shards", "Shards", body, None, printable(stats.group) or "popped")


def oldest(stats: Stats, found: Sequence[Peeked]) -> Element:
    """Return the oldest unfinished messages; in a queue of dead letters, why they are there."""
    if found and all(one.source is not None for one in found):
        return _section("oldest", "Oldest dead letters", _letters(found), _oldest_note(stats, found))
    rows = [
        make(
            "tr",
            make("th", make("code", preview(one.body, PREVIEW)), scope="row"),
            _cell("State", one.state),
            _number("Attempts", one.attempts),
            _number("Priority", one.priority),
            make("td", moment(one.pushed_ms), data_label="Pushed (UTC)"),
            _cell("Key", "" if one.key is None else printable(one.key)),
            _cell("Id", f"{one.seqnum}-{one.number}", "number"),
            data_key=f"{one.shard} {one.seqnum} {one.number}",
        )
        for one in found
    ]
    names = ("Message", "State", "Attempts", "Priority", "Pushed (UTC)", "Key", "Id")
    body: Node = _table("letters", names, rows) if rows else make("p", "No message waits.", class_="empty")
    return _section("oldest", "Oldest messages", body, _oldest_note(stats, found))


def _oldest_note(stats: Stats, found: Sequence[Peeked]) -> Node:
    if len(found) >= stats.depth:
        return None
    return make("p", f"The oldest {len(found):,} of {stats.depth:,}.", class_="note")


def letters(book: str, config: Config, found: Sequence[Peeked], depth: int, of: Sequence[str] = ()) -> Element:
    """Return the dead letters of this queue and of others that share its queue of dead letters.

    Args:
        depth: the number of dead letters.
        of: the queues whose dead letters this queue has.
    """
    if config.dead_letter is None and of:
        back = "`boki queue redrive` sends them back to the queue that they come from."
        return _section(
            "letters", "Dead letters", make("p", f"This queue keeps them for others. {back}", class_="note"), None
        )
    if config.dead_letter is None:
        none = "There is no queue of dead letters: each message is redelivered without limit."
        return _section("letters", "Dead letters", make("p", none, class_="note"), None)
    body: Node = _letters(found) if found else make("p", "No dead letters.", class_="empty")
    link = make("a", printable(config.dead_letter), href=address(PATH, book=book, queue=config.dead_letter))
    note = (
        make("p", f"{depth:,} in ", link, ". They go back by `boki queue redrive`.", class_="note") if found else None
    )
    return _section("letters", "Dead letters", body, note)


def _letters(found: Sequence[Peeked]) -> Element:
    rows = [
        make(
            "tr",
            make("th", make("code", preview(one.body, PREVIEW)), scope="row"),
            _cell("Of", "" if one.source is None else printable(one.source.queue)),
            _cell("Why", "" if one.source is None else printable(one.source.reason)),
            _cell("Error", "" if one.source is None else error_text(one.source)),
            _number("Attempts", 0 if one.source is None else one.source.attempts),
            make("td", moment(one.pushed_ms), data_label="Given up (UTC)"),
            data_key=f"{one.shard} {one.seqnum} {one.number}",
        )
        for one in found
    ]
    return _table("letters", ("Message", "Of", "Why", "Error", "Attempts", "Given up (UTC)"), rows)


# -- parts


def _section(id: str, title: str, body: Node, note: Node, of: str | None = None) -> Element:
    head = make("h2", title, None if of is None else make("small", of), id=f"{id}-title")
    return make("section", head, body, note, id=id, class_="panel", data_region=True)


def _table(kind: str, names: Sequence[str], rows: Sequence[Element]) -> Element:
    heads = make("tr", *(make("th", name, scope="col", class_=_numbers(name)) for name in names))
    return make("div", make("table", make("thead", heads), make("tbody", *rows), class_=kind), class_="scroll")


def _numbers(name: str) -> str | None:
    return "number" if name in ("Unfinished", "In flight", "Delayed", "Oldest", "Attempts", "Priority", "Id") else None


def _cell(label: str, text: str, class_: str | None = None) -> Element:
    return make("td", text, data_label=label, class_=class_)


def _number(label: str, count: int) -> Element:
    return _cell(label, f"{count:,}", "number")
