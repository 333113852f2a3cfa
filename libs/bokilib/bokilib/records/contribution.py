"""Contributions of libraries to a record, and how several are joined into one. Pure.

A contribution is (tags, expect, events). The joined one has each tag once, the lowest of several expectations of a stream, and the
events in the order of the contributions. The bounds are the log's 255 tags and 256 expectations, and 512 KiB, so that the record has
room for its envelope. A contribution over the bounds is refused before anything is sent.

A record is in one book. A contribution that a program gets from a library knows its book (`Origin`), and is refused in a record of another
book: there the stream that it joins would be one that no reader of the library follows. The origin is not encoded. A contribution without
one, such as a program makes itself, joins a record of any book.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from boki_common.errors import InvalidArgument
from boki_common.limits import MIB, RECORD_EXPECTATIONS, RECORD_TAGS
from bokilib.errors import AtomicTooLarge, WrongBook
from bokilib.records.events import Event
from bokilib.records.isolation import lowest
from bokilib.stacks import shown

ATOMIC_BYTES: Final = MIB // 2
ONE_BOOK: Final = "what commits in one record is in one book; open all of it on one Log: `Queue.open(store.log, …)`, `Flow(app, store.log)`"


class BookIdentity(NamedTuple):
    """The identity of a book, the same through all clients and sessions.

    Attributes:
        id: the number of the book.
        cluster: the cluster as `boki.Client.cluster` names it; None if its engines do not say.
        name: the name or number that the program opened the book by.
    """

    id: int
    cluster: str | None
    name: str | int

    def is_same(self, other: BookIdentity) -> bool:
        """Return whether this is the same book, as far as is known of the clusters."""
        return self.id == other.id and (self.cluster == other.cluster or None in (self.cluster, other.cluster))

    def beside(self, other: BookIdentity) -> str:
        """Return the name of this book, with its cluster if the other book has the same number."""
        return f"book {self.name!r}" + (f" of cluster {self.cluster}" if self.id == other.id else "")


def identity_of(book: object) -> BookIdentity | None:
    """Return the identity of a book; None for a `BookPort` that does not tell it."""
    id, name = getattr(book, "id", None), getattr(book, "name", None)
    return None if id is None or name is None else BookIdentity(id, getattr(book, "cluster", None), name)


class Origin(NamedTuple):
    """The origin of a contribution.

    Attributes:
        book: the book that it is for; None if that is not known.
        maker: words for the object that it comes from, such as "queue 'emails'".
    """

    book: BookIdentity | None
    maker: str


class Address(NamedTuple):
    """A stream of a record that is read right before the record is sent, for parts that are made where nothing can be read.

    Attributes:
        stands_in: the name among the contribution's tags that stands for it, so that it counts.
        read: returns the stream, and what the record expects. Called with True it reads what is newest: a record that expected what the
            call before had read was refused.
    """

    stands_in: str
    read: Callable[[bool], Awaitable[tuple[str, Mapping[str, int | None]]]]


class Contribution(msgspec.Struct, frozen=True):
    """The part of a record that one library, or one transaction, adds.

    Attributes:
        tags: streams that the record joins.
        expect: expectations of streams, including fences.
        events: of the library.
        origin: the book that it is for, and the object that it comes from; None if that is not known.
        addresses: streams that are read when the record is sent. If a read fails, nothing is sent.
    """

    tags: tuple[str, ...] = ()
    expect: Mapping[str, int | None] = {}
    events: tuple[Event, ...] = ()
    origin: Origin | None = None
    addresses: tuple[Address, ...] = ()


def joined(contributions: Iterable[Contribution]) -> Contribution:
    """Join contributions into one.

    Raises:
        InvalidArgument: two of them begin the same id, that is, join its stream and expect it to be new.
        WrongBook: two of them are for different books.
    """
    several = list(contributions)
    origin: Origin | None = None
    for one in several:
        if one.origin is not None and one.origin is not origin:
            if origin is not None:
                _check_same(one.origin, origin.book)
            if origin is None or origin.book is None:
                origin = one.origin
    new = [tag for one in several for tag in one.tags if one.expect.get(tag, 0) is None]
    if len(new) > len(set(new)):
        twice = next(tag for tag in new if new.count(tag) > 1)
        raise InvalidArgument(f"expected each id to begin once in a record, found {twice!r} twice", found=twice)
    return Contribution(
        tuple(dict.fromkeys(tag for one in several for tag in one.tags)),
        lowest(one.expect for one in several),
        tuple(event for one in several for event in one.events),
        origin,
        tuple(address for one in several for address in one.addresses),
    )


def addressed(one: Contribution, found: Iterable[tuple[str, Mapping[str, int | None]]]) -> Contribution:
    """Return a contribution with what the reads of its addresses returned, in their order.

    Where a record takes no more expectations, those of addresses are left out.
    """
    streams: dict[str, list[str]] = {}
    expect = dict(one.expect)
    for address, (stream, expected) in zip(one.addresses, found, strict=True):
        streams.setdefault(address.stands_in, []).append(stream)
        more = {tag: place for tag, place in expected.items() if tag not in expect}
        if len(expect) + len(more) <= RECORD_EXPECTATIONS:
            expect |= more
    names = tuple(dict.fromkeys(name for tag in one.tags for name in streams.get(tag, (tag,))))
    return msgspec.structs.replace(one, tags=names, expect=expect, addresses=())


def check_part(part: object, book: BookIdentity | None) -> None:
    """Check that a part may join a record of a book.

    Raises:
        InvalidArgument: it is no contribution.
        WrongBook: it is for another book.
    """
    if not isinstance(part, Contribution):
        raise _no_contribution(part)
    if part.origin is not None:
        _check_same(part.origin, book)


def check_in_book(what: str, book: BookIdentity | None, origin: Origin) -> None:
    """Check that an object is in the book of another object that commits with it.

    Args:
        what: words for the object, such as "a store".
        book: the book of the object.
        origin: the other object.

    Raises:
        WrongBook: they are in different books.
    """
    differ = _names_if_different(origin.book, book)
    if differ is None:
        return
    expected, found = differ
    raise WrongBook(
        f"expected {what} in {expected}, that of {origin.maker}, found one in {found}: {ONE_BOOK}",
        expected=expected,
        found=found,
    )


def _names_if_different(one: BookIdentity | None, other: BookIdentity | None) -> tuple[str, str] | None:
    """Return the names of two books side by side; None if they are the same, or one is not known."""
    if one is other or one is None or other is None or one.is_same(other):
        return None
    return one.beside(other), other.beside(one)


def _check_same(origin: Origin, book: BookIdentity | None) -> None:
    """Check that a part is for a book. Raises WrongBook."""
    differ = _names_if_different(origin.book, book)
    if differ is None:
        return
    found, expected = differ
    raise WrongBook(
        f"expected a part for {expected}, found one of {origin.maker} in {found}: {ONE_BOOK}",
        expected=expected,
        found=found,
    )


def _no_contribution(part: object) -> InvalidArgument:
    found = f"found {type(part).__name__} {shown(part)}"
    if inspect.iscoroutine(part):
        found = f"found a coroutine of {part.__qualname__!r}, which was not run"
        if inspect.getcoroutinestate(part) == inspect.CORO_CREATED:
            part.close()  # so that Python does not also warn that it was never awaited
    return InvalidArgument(
        "expected a contribution to the record, as `queue.pushed(…)`, `message.acked()` and `await starting(…)` return, "
        f"{found}: use `pushed` and not `push`, `acked` and not `ack`, and await `starting`"
    )


def check_fits(one: Contribution, size: int) -> None:
    """Check that a contribution fits one record.

    Args:
        one: the contribution.
        size: of the record, in bytes.

    Raises:
        AtomicTooLarge: it has too many tags, expectations or bytes; the error says which.
    """
    for what, found, limit in (
        ("tags", len(one.tags), RECORD_TAGS),
        ("expectations", len(one.expect), RECORD_EXPECTATIONS),
        ("bytes", size, ATOMIC_BYTES),
    ):
        if found > limit:
            instead = {
                "tags": "commit less at once",
                "expectations": "read a collection by a scan, or less at once",
                "bytes": "commit less at once, or store large values elsewhere and commit their addresses",
            }[what]
            raise AtomicTooLarge(
                f"expected at most {limit} {what} in a record, found {found}: {instead}",
                expected=limit,
                found=found,
                what=what,
            )


def fits(one: Contribution, size: int) -> bool:
    """Return whether a contribution whose record has `size` bytes fits one record."""
    return counts_fit(len(one.tags), len(one.expect), size)


def counts_fit(tags: int, expectations: int, size: int) -> bool:
    """Return whether so many tags, expectations and bytes fit one record."""
    return tags <= RECORD_TAGS and expectations <= RECORD_EXPECTATIONS and size <= ATOMIC_BYTES
