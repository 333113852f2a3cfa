"""`boki queue …` against a cluster in memory: output for people and for programs, and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

import boki.sync
import bokiqueue.sync
from boki_cli import main
from boki_cli.options import CommandGroup
from boki_cli.testing.commands import Outcome, memory_cluster, run_command_line
from bokiqueue.manage.inspection import Peeked
from bokiqueue.model.events import Source
from bokiqueue_tools import commands
from bokiqueue_tools.wording import peeked_facts, peeked_line, seconds

EVIL = "a\x1b[31m\nü"


@pytest.fixture
def url() -> Iterator[str]:
    with memory_cluster() as one:
        yield one


@pytest.fixture
def book(url: str) -> Iterator[boki.sync.Book]:
    with boki.sync.connect(url) as client:
        yield client.book("shop")


@pytest.fixture
def run(url: str) -> Callable[..., Outcome]:
    return lambda *arguments: run_command_line("queue", *arguments, "--book", "shop", "--url", url)


Run = Callable[..., Outcome]


def test_ls(book: boki.sync.Book, run: Run) -> None:
    bokiqueue.sync.Queue.open(book, "emails", object, shards=2, dead_letter=EVIL).register("audit")
    bokiqueue.sync.Queue.open(book, "old", object, mode="pop", shards=1)
    assert run("ls").out.splitlines() == [
        "a\\x1b[31m\\nü  1 shards  default",
        "emails  2 shards  audit, default",
        "old  1 shards  popped",
    ]
    exact = [json.loads(line) for line in run("ls", "--json").out.splitlines()]
    assert exact[1] == {
        "queue": "emails",
        "mode": "consume",
        "shards": 2,
        "groups": ["audit", "default"],
        "dead_letter": EVIL,
        "paused": False,
        "key_rates": {},
    }
    assert run("limit", "emails", "ann", "--per-second", "0.5").out == "0.5/s\n"
    assert json.loads(run("ls", "--json").out.splitlines()[1])["key_rates"] == {"ann": 0.5}
    assert run("limit", "emails", "ann", "--usual").out == "as usual\n"
    assert run("limit", "emails", "ann").code == 2, "neither"


def test_stats_and_peek(book: boki.sync.Book, run: Run) -> None:
    queue = bokiqueue.sync.Queue.open(book, "emails", object, shards=1)
    queue.push({"to": EVIL}, key="ann")
    queue.push("later", delay_s=900)
    assert run("stats", "emails").out.splitlines() == [
        "emails  2 unfinished, 0 in flight, 1 delayed, oldest 0.0 s",
        "    no consumers: no member of group 'default' is known",
        "    shard 0  2 unfinished, 0 in flight  no owner",
    ]
    check = run("stats", "emails", "--check")
    assert (check.code, check.err) == (1, "no consumers: no member of group 'default' is known\n")
    with queue.consume(who="host-7") as messages:
        next(messages)
        assert run("stats", "emails", "--check").out.splitlines()[1] == "    consumed by host-7"
    for name, group in (("other", "default"), ("emails", "other")):
        assert "there is no queue" in (said := run("stats", name, "--group", group, "--check")).err or group in said.err
        assert said.code == 1
    stats = json.loads(run("stats", "emails", "--json").out)
    assert (stats["depth"], stats["delayed"], stats["shards"][0]["owner"]) == (2, 1, "")
    first, second = run("peek", "emails").out.splitlines()
    assert first.endswith('shard 0  waits  key ann  {"to":"a\\u001b[31m\\nü"}')
    assert second.endswith('delayed  "later"')
    (one,) = [json.loads(line) for line in run("peek", "emails", "--limit", "1", "--json").out.splitlines()]
    assert (one["body"], one["key"], one["state"], one["source"]) == ({"to": EVIL}, "ann", "waits", None)


def test_lists_of_nothing_say_so_and_fail_a_check(book: boki.sync.Book, run: Run) -> None:
    assert run("ls") == (0, "", "There are no queues in the book 'shop'.\n")
    assert run("ls", "--check").code == 1
    failed = run("ls", "--check", "--json")
    assert (failed.code, failed.out, json.loads(failed.err)["message"]) == (
        1,
        "",
        "There are no queues in the book 'shop'.",
    )
    missing = run("stats", "no", "--check", "--json")
    assert (missing.code, json.loads(missing.err)["error"]) == (1, "CheckFailed")
    queue = bokiqueue.sync.Queue.open(book, "emails", object)
    assert run("peek", "emails") == (0, "", "No message of 'emails' waits for 'default', and none is in flight.\n")
    assert run("peek", "emails", "--check").code == 1
    queue.push(1)
    assert (run("ls", "--check").code, run("peek", "emails", "--check").code) == (0, 0)


def test_dead_letters_are_shown_and_go_back(book: boki.sync.Book, run: Run) -> None:
    queue = bokiqueue.sync.Queue.open(book, "emails", object, dead_letter="dead")
    queue.push("bad")
    with queue.consume() as messages:
        next(messages).give_up("no such person")
    assert "from emails: no such person" in run("peek", "dead").out
    assert json.loads(run("peek", "dead", "--json").out)["source"]["reason"] == "no such person"
    assert run("redrive", "dead") == (0, "1 messages moved back\n", "")
    assert json.loads(run("redrive", "dead", "--json").out) == {
        "queue": "dead",
        "moved": 0,
        "left": {},
        "without_group": {},
    }
    assert [one.body for one in queue.peek()] == ["bad"]


def test_letters_of_a_queue_that_is_gone_are_left_and_named(book: boki.sync.Book, run: Run) -> None:
    """It said that the queue of dead letters does not exist."""
    for name in ("emails", "gone"):
        queue = bokiqueue.sync.Queue.open(book, name, object, shards=1, dead_letter="dead")
        queue.push(name)
        with queue.consume() as messages:
            next(messages).give_up("no such person")
    queue.delete()
    code, out, err = run("redrive", "dead")
    assert (code, out) == (0, "1 messages moved back\n")
    assert "1 messages are left: they came from 'gone'" in err
    assert json.loads(run("redrive", "dead", "--json").out)["left"] == {"gone": 1}


def test_letters_of_a_group_that_is_gone_are_left_until_another_is_named(book: boki.sync.Book, run: Run) -> None:
    queue = bokiqueue.sync.Queue.open(book, "emails", object, shards=1, dead_letter="dead")
    queue.register("audit")
    queue.push("bad")
    with queue.consume(group="audit") as messages:
        next(messages).give_up("no such person")
    assert "from emails for audit: no such person" in run("peek", "dead").out
    queue.drop("audit")
    queue.register("checks")
    code, out, err = run("redrive", "dead")
    assert (code, out) == (0, "0 messages moved back\n") and "with --group GROUP" in err
    assert run("redrive", "dead", "--group", "checks").out == "1 messages moved back\n"
    assert queue.stats("checks").depth == 1


def test_pause_resume_and_purge(book: boki.sync.Book, run: Run) -> None:
    queue = bokiqueue.sync.Queue.open(book, "emails", object)
    queue.push(1)
    assert run("pause", "emails") == (0, "paused\n", "")
    assert "paused" in run("stats", "emails").out
    assert "paused" in run("ls").out
    assert run("resume", "emails").out == "resumed\n"
    assert run("purge", "emails").code == 2, "nobody can be asked"
    assert json.loads(run("purge", "emails", "--yes", "--json").out) == {"queue": "emails", "done": "purged"}
    assert queue.stats().depth == 0


class Turned:
    """A payload hook that the command has not."""

    name = "turned"

    async def seal(self, events: bytes) -> bytes:
        return events[::-1]

    async def open(self, sealed: bytes) -> bytes:
        return sealed[::-1]


def test_only_the_record_that_cannot_be_opened_is_dropped(book: boki.sync.Book, run: Run) -> None:
    queue = bokiqueue.sync.Queue.open(book, "emails", object)
    queue.push("opened", key="k")
    hooked = bokiqueue.sync.Queue.open(book, "emails", object, hook=Turned())
    hooked.push("closed", key="k")
    found = json.loads(run("peek", "emails", "--json").out.splitlines()[-1])
    assert found["state"] == "unopened"
    assert run("purge", "emails", "--record", str(found["seqnum"]), "--yes").out == "purged\n"
    assert [one.body for one in queue.peek()] == ["opened"]
    assert run("purge", "emails", "--record", str(found["seqnum"] - 1), "--yes").code == 2, "it can be opened"


def test_what_is_not_there_is_reported_with_an_exit_code(run: Run, book: boki.sync.Book) -> None:
    refused = run("stats", "none")
    missing = "there is no queue 'none' in the book 'shop'; `boki queue ls --book shop` lists its queues\n"
    assert refused == (4, "", f"Error: {missing}")
    assert all(run(name, "none", "--check") == (1, "", missing) for name in ("stats", "peek"))
    bokiqueue.sync.Queue.open(book, "emails", object)
    group = "queue 'emails' in the book 'shop' has no group 'none'; its groups: 'default'\n"
    for name in ("stats", "peek"):
        assert run(name, "emails", "--group", "none") == (2, "", f"Error: {group}")
        assert run(name, "emails", "--group", "none", "--check") == (1, "", group)
    assert run("peek", "emails", "--limit", "0").code == 2
    away = ("--url", "boki://127.0.0.1:1", "--timeout", "0.2")
    assert run_command_line("queue", "ls", "--book", "b", *away).code == 3


def test_every_command_has_help_with_an_example() -> None:
    group = CommandGroup()
    commands.register(group)
    queue = group.commands["queue"]
    assert isinstance(queue, CommandGroup)
    assert sorted(queue.commands) == [
        "change",
        "delete",
        "limit",
        "ls",
        "pause",
        "peek",
        "purge",
        "redrive",
        "resume",
        "stats",
    ]
    for name in queue.commands:
        text = run_command_line("queue", name, "--help").out
        assert f"boki queue {name} " in text.partition("\n\n")[2], name


@pytest.mark.processes
def test_help_imports_no_library() -> None:
    program = (
        "import sys; from boki_cli import main; from boki_cli.options import run; run(main.boki, ['queue', '--help'])"
    )
    printed = "print([name for name in ('bokiqueue', 'bokilib', 'boki') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", f"{program}; {printed}"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_command_is_an_entry_point() -> None:
    assert main.of_libraries()["queue"].value == "bokiqueue_tools.commands:register"


def test_settings_are_changed_and_a_queue_is_deleted(book: boki.sync.Book, run: Run) -> None:
    queue = bokiqueue.sync.Queue.open(book, "emails", object, shards=1)
    assert run("change", "emails", "--max-deliveries", "3").code == 2, "without dead letters nothing is given up"
    assert run("change", "emails", "--dead-letter", "dead", "--max-deliveries", "3", "--in-flight", "4").code == 0
    again = bokiqueue.sync.Queue.open(book, "emails", object, dead_letter="dead", max_deliveries=3)
    assert again.queue.limits.in_flight == 4
    queue.push("gone")
    assert run("delete", "emails").code == 2, "nobody can be asked"
    assert run("delete", "emails", "--yes") == (0, "deleted\n", "")
    assert run("stats", "emails").code != 0
    assert [line.split()[0] for line in run("ls").out.splitlines()] == ["dead"]


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
