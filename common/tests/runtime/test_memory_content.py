"""What is durable is what a second copy of the file would hold that gets the same writes at their flush."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from boki_common.runtime.memory_content import SECTOR_BYTES, Content


class TwoCopies:
    """The plain model: the file as written, and as durable."""

    def __init__(self, data: bytes) -> None:
        self.written = bytearray(data)
        self.durable = bytearray(data)
        self.unflushed: list[tuple[int, bytes]] = []

    @staticmethod
    def put(view: bytearray, offset: int, data: bytes) -> None:
        if data:
            view.extend(bytes(max(0, offset - len(view))))
            view[offset : offset + len(data)] = data

    def write(self, offset: int, data: bytes) -> None:
        self.put(self.written, offset, data)
        self.unflushed.append((offset, data))

    def flush(self, count: int) -> None:
        for offset, data in self.unflushed[:count]:
            self.put(self.durable, offset, data)
        del self.unflushed[:count]

    def truncate(self, size: int) -> None:
        for view in (self.written, self.durable):
            del view[size:]
            view.extend(bytes(size - len(view)))
        self.unflushed = [(offset, data[: max(0, size - offset)]) for offset, data in self.unflushed]

    def flip_bit(self, offset: int, bit: int) -> None:
        for start, view in self.views():
            if start <= offset < start + len(view):
                view[offset - start] ^= 1 << bit

    def overwrite(self, offset: int, data: bytes) -> None:
        for start, view in self.views():
            for number, byte in enumerate(data, offset):
                if start <= number < start + len(view):
                    view[number - start] = byte

    def views(self) -> Iterator[tuple[int, bytearray]]:
        """All that is at rest somewhere; damage meets all of it."""
        yield 0, self.written
        yield 0, self.durable
        for number, (offset, data) in enumerate(self.unflushed):
            view = bytearray(data)
            yield offset, view
            self.unflushed[number] = (offset, bytes(view))


OFFSETS = st.integers(0, 40)
STEPS = st.one_of(
    st.tuples(st.just("write"), OFFSETS, st.binary(max_size=20)),
    st.tuples(st.just("fill"), OFFSETS, st.integers(0, 20).map(bytes)),
    st.tuples(st.just("flush"), st.integers(0, 4), st.just(b"")),
    st.tuples(st.just("lose"), OFFSETS, st.just(b"")),
    st.tuples(st.just("truncate"), OFFSETS, st.just(b"")),
    st.tuples(st.just("flip"), OFFSETS, st.just(b"")),
    st.tuples(st.just("overwrite"), OFFSETS, st.binary(max_size=20)),
)


@given(st.binary(max_size=30), st.lists(STEPS, max_size=12))
def test_it_holds_what_two_copies_would_hold(data: bytes, steps: list[tuple[str, int, bytes]]) -> None:
    content, model = Content(data), TwoCopies(data)
    flushed = 0
    hole = False  # what is between the end and a write behind it is not written at all: damage there is of no interest
    for kind, number, new in steps:
        if kind in ("write", "fill"):
            hole |= number > content.size
            (content.write if kind == "write" else content.fill)(number, new)
            model.write(number, new)
        elif kind == "flush":
            count = min(number, len(model.unflushed))
            flushed += count
            content.flush(flushed)
            model.flush(count)
        elif kind == "lose":
            flushed += len(model.unflushed)
            content.lose()
            model.unflushed.clear()
        elif kind == "truncate":
            content.truncate(number)
            model.truncate(number)
        elif hole:
            continue
        elif kind == "flip":
            content.flip_bit(number, number % 8)
            model.flip_bit(number, number % 8)
        elif number + len(new) <= len(model.written):
            content.overwrite(number, new)
            model.overwrite(number, new)
        assert content.written == model.written
        assert content.size == len(model.written)
        assert content.read(number, 25) == model.written[number : number + 25]
        assert content.durable() == model.durable


def test_what_a_failed_flush_lost_is_read_until_a_crash_and_never_flushed() -> None:
    content = Content(b"old " * 2)
    content.write(4, b"lost")
    content.lose()
    content.write(0, b"new ")
    content.flush(2)
    assert content.written == b"new lost"
    assert content.after_crash(Fates()) == b"new old "  # type: ignore[arg-type]
    content.write(4, b"lost")
    content.flush(3)
    assert content.after_crash(Fates()) == b"new lost"  # type: ignore[arg-type]


class Fates:
    """A rng whose answers are given."""

    def __init__(self, *numbers: int) -> None:
        self._numbers = list(numbers)

    def below(self, bound: int) -> int:
        number = self._numbers.pop(0)
        assert number < bound
        return number


def test_a_crash_leaves_sectors_of_what_no_flush_reached() -> None:
    content = Content(b"-" * SECTOR_BYTES)
    content.write(SECTOR_BYTES, b"f" * SECTOR_BYTES)
    content.flush(1)
    content.write(0, b"w" * 4 * SECTOR_BYTES)
    durable = b"-" * SECTOR_BYTES + b"f" * SECTOR_BYTES
    nothing, everything, two_sectors = Fates(0, 0), Fates(1, 0), Fates(2, 2)
    assert content.after_crash(nothing) == durable  # type: ignore[arg-type]  # as much of a rng as is asked
    assert content.after_crash(everything) == b"w" * 4 * SECTOR_BYTES  # type: ignore[arg-type]
    assert content.after_crash(two_sectors) == b"w" * 2 * SECTOR_BYTES  # type: ignore[arg-type]
    assert content.written == b"w" * 4 * SECTOR_BYTES
