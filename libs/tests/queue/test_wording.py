"""Words for people."""

from __future__ import annotations

from bokiqueue.manage.inspection import Peeked
from bokiqueue.model.events import Source
from bokiqueue_tools.wording import peeked_facts, peeked_line, seconds


def test_what_is_long_is_cut_and_what_moves_a_cursor_is_escaped() -> None:
    assert [seconds(ms) for ms in (150, 75_000, 600_000, 12_600_000)] == ["0.1 s", "75.0 s", "10 min", "3.5 h"]
    long = Peeked(1, 9, 0, 5, "waits", 0, None, None, "x" * 500)
    assert len(peeked_line(long).split()[-1]) == 100
    one = Peeked(1, 9, 0, 5, "in flight", 2, "k\n", None, [1])
    assert peeked_line(one) == "9-0  shard 1  in flight  attempt 2  key k\\n  [1]"
    source = Source("jobs", 0, 5, 0, 3, "too many attempts failed", f"ValueError('no\n{'x' * 500}')", "Traceback …")
    letter = peeked_line(one._replace(source=source, key=None))
    assert (
        "from jobs: too many attempts failed: ValueError('no\\nxx" in letter
        and "…  [1]" in letter
        and len(letter) < 350
    )
    assert peeked_facts(one._replace(source=source))["source"]["stack"] == "Traceback …"
