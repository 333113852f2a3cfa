"""The commands `boki rsm …` against a cluster in memory: their output for people and programs, and their exit codes."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

import pytest

import boki
from boki_cli import main
from boki_cli.options import CommandGroup, Invocation
from boki_cli.testing.commands import Outcome, memory_cluster, run_command_line
from boki_common.runtime.loop_thread import LoopThread
from bokilib.append.log import Log
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokirsm import App, Host, Ref, Rsm
from bokirsm_tools import command_parts, commands
from libs.tests.rsm import operated
from libs.tests.rsm.operated import APP, EVIL, Divide, Divider, fill
from libs.tests.rsm.test_reading import Newer

Run = Callable[..., Outcome]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Return the URL of a cluster with a book of machines: one has a fault, one halted, one defers events, one has a timer."""
    with memory_cluster() as one:
        asyncio.run(with_client(one, fill))
        yield one


@pytest.fixture
def filled() -> Iterator[str]:
    """Return the URL of a cluster of one test, likewise."""
    with memory_cluster() as one:
        asyncio.run(with_client(one, fill))
        yield one


async def with_client(url: str, work: Callable[[boki.Client], Any]) -> Any:
    async with boki.connect(url) as client:
        return await work(client)


@pytest.fixture
def run(url: str) -> Run:
    return lambda *arguments: run_command_line("rsm", *arguments, "--book", "shop", "--url", url)


def lines(outcome: Outcome) -> list[dict[str, Any]]:
    assert outcome.code == 0, outcome.err
    return [json.loads(line) for line in outcome.out.splitlines()]


def test_ls_lists_machines_by_name_and_says_how_each_is(run: Run) -> None:
    shown = [line.split("  no living host: host-1.") for line in run("ls").out.splitlines()]
    assert [line[0] for line in shown] == [
        "ready    shop/23/alarm  Alarm  run",
        "ready    shop/29/counter  Counter  counting",
        "faulted  shop/53/divider  Divider  run  2 wait  Divide: ZeroDivisionError: division by zero",
        "halted   shop/60/ended  Alarm  run",
        "ready    shop/51/gate  Gate  closed  2 wait",
        "ready    shop/47/max  Max  run",
    ]
    assert [len(line) for line in shown] == [2, 2, 2, 1, 2, 2], "a machine that halted needs no host"
    (one,) = lines(run("ls", "--faulted", "--json"))
    assert (one["id"], one["status"], one["class"], one["commits"]) == ("shop/53/divider", "faulted", "Divider", 2)
    assert (one["error"], one["waiting"]) == ("ZeroDivisionError: division by zero", 2)
    assert (one["owner"]["host"], one["owner"]["alive"], one["owner"]["living_hosts"]) == (None, False, [])
    assert [one["name"] for one in lines(run("ls", "--class", "Alarm", "--json"))] == ["alarm", "ended"]
    assert [one["name"] for one in lines(run("ls", "--app", "shop", "--state", "closed", "--json"))] == ["gate"]


def test_ls_goes_page_by_page(run: Run) -> None:
    found = lines(run("ls", "--limit", "4", "--json"))
    assert [one.get("name") for one in found] == ["alarm", "counter", "divider", "ended", None]
    assert found[-1] == {"after": "shop/60/ended"}
    assert [one["name"] for one in lines(run("ls", "--after", "shop/60/ended", "--json"))] == ["gate", "max"]
    assert run("ls", "--limit", "4").err == "There may be more: --after shop/60/ended\n"
    run("ls", "--after", "x").refused("expected a machine as group/partition/name")


def test_ls_says_that_nothing_passes_its_filters(run: Run) -> None:
    words = "No machine of the book 'shop' matches the filters.\n"
    assert run("ls", "--class", "Unknown") == (0, "", words)
    assert run("ls", "--class", "Unknown", "--check") == (1, "", words)
    failed = run("ls", "--class", "Unknown", "--check", "--json")
    assert (failed.code, failed.out, json.loads(failed.err)["error"]) == (1, "", "CheckFailed")
    assert "the app 'shop' of the book 'shop'" in run("ls", "--app", "shop", "--state", "unknown").err


@pytest.mark.parametrize("command", [("ls",), ("show", "x"), ("timeline", "x"), ("resume", "x"), ("skip", "x")])
def test_what_is_not_there_is_said_with_exit_code_1(url: str, command: tuple[str, ...]) -> None:
    def ask(*more: str) -> Outcome:
        return run_command_line("rsm", *command, *more, "--url", url)

    assert ask("--book", "no") == (1, "", "Error: there are no machines in the book 'no'\n")
    assert ask("--book", "shop", "--app", "no") == (1, "", "Error: there is no app 'no' in the book 'shop'\n")
    said = json.loads(ask("--book", "no", "--json").err)
    assert (said["exit_code"], said["facts"]) == (1, {"book": "no"})
    if command != ("ls",):
        for id in ((), ("shop/7",)):
            words = run_command_line("rsm", command[0], *(id or ("x",)), "--book", "shop", "--url", url)
            assert words.code == 1 and "`boki rsm ls --book shop` lists the machines" in words.err
        assert run_command_line("rsm", command[0], "shop/7/x", "--book", "shop", "--url", url).code == 1


def test_resume_all_of_what_is_not_there_is_said(run: Run, url: str) -> None:
    run("resume", "--all", "--app", "no").refused("there is no app 'no' in the book 'shop'", code=1)
    words = "No machine of the book 'shop' has a fault of class Gate by KeyError.\n"
    assert run("resume", "--all", "--class", "Gate", "--error", "KeyError") == (0, "0 asked to try again\n", words)
    assert run("resume", "--all", "--error", "KeyError", "--check").code == 1
    for wrong in ((), ("x", "--all"), ("x", "--class", "C"), ("x", "--error", "E"), ("x", "--check")):
        run("resume", *wrong).refused("expected either MACHINE or --all")


def test_show_has_the_fault_with_its_stack(run: Run) -> None:
    shown = run("show", "divider").out.splitlines()
    assert shown[:4] == ["status    faulted", "app       shop", "class     Divider", "state     run"]
    assert "partition 53, no living host: host-1." in shown[5] and shown[5].endswith(", and has left")
    assert "field     done = 1" in shown and "inbox     2 wait" in shown
    assert any(line.startswith("fault     Divide: ZeroDivisionError: division by zero since 20") for line in shown)
    assert shown[-1] == "ZeroDivisionError: division by zero" and "    result = 1 / e.by" in shown
    (one,) = lines(run("show", "shop/53/divider", "--json"))
    assert one["fields"] == {"registers": {"done": 1}, "tables": {}}
    assert [message["value"]["by"] for message in one["inbox"]["head"]] == [0, 2]
    fault = one["fault"]
    assert (fault["event"], fault["timer"], fault["message"]) == ("Divide", None, one["inbox"]["head"][0]["message"])
    assert "result = 1 / e.by" in fault["stack"] and fault["seqnum"] == one["newest_commit"]["seqnum"]


def test_show_has_deferred_events_timers_tables_and_halted_machines(run: Run) -> None:
    (gate,) = lines(run("show", "gate", "--app", "shop", "--json"))
    assert [message["value"]["text"] for message in gate["deferred"]["head"]] == [EVIL, "x"]
    assert gate["inbox"] == {"length": 0, "head": []} and gate["fault"] is None
    assert 'Item{"text":"a\\u001b[31m\\nb"}' in run("show", "gate").out, "what others wrote moves no cursor"
    (alarm,) = lines(run("show", "alarm", "--json"))
    assert [(one["timer"], one["event"], one["every_ms"]) for one in alarm["timers"]] == [("wake", "Ring", 60_000)]
    assert alarm["timers"][0]["due_ms"] - alarm["timers"][0]["set_ms"] == 3_600_000
    assert "timer     wake: Ring, due 20" in run("show", "alarm").out
    (counter,) = lines(run("show", "counter", "--json", "--keys", "1"))
    assert counter["fields"]["tables"] == {"freq": {"keys": 2, "first": [["to", 2]]}}
    assert counter["fields"]["registers"] == {"high": 2, "target": "shop/47/max"}
    (ended,) = lines(run("show", "ended", "--json"))
    assert (ended["status"], ended["timers"], ended["waiting"]) == ("halted", [], 0)


def test_timeline_is_what_a_machine_did_in_the_order_of_the_log(run: Run) -> None:
    found = lines(run("timeline", "counter", "--json"))
    assert [one["kind"] for one in found if one["kind"] != "arrives"] == [
        *("takes", "enters", "sets"),
        *("takes", "sets", "sets", "sends", "replies"),
        *("takes", "sets", "replies"),
        *("takes", "sets", "sets", "sends", "replies"),
    ]
    assert found == sorted(found, key=lambda one: one["seqnum"]) and all(one["time_ms"] for one in found)
    assert [one["value"] for one in found if one["kind"] == "replies"] == [1, 1, 2]
    shown = run("timeline", "divider").out.splitlines()
    assert len(shown) == 12 and shown[9].endswith("  faults    Divide: ZeroDivisionError: division by zero")
    assert "  #2  replies   answer 0.25" in shown[8]
    assert [one["kind"] for one in lines(run("timeline", "ended", "--json"))][-4:] == [
        "timer",
        "takes",
        "halts",
        "drops",
    ]
    assert "  timer     wake: Ring, due 20" in run("timeline", "alarm").out


def test_decisions_wait_for_a_host_that_is_alive(filled: str) -> None:
    def ask(*arguments: str) -> Outcome:
        return run_command_line("rsm", *arguments, "--book", "shop", "--url", filled)

    (one,) = lines(ask("resume", "--all", "--class", "Divider", "--error", "ZeroDivisionError", "--json"))
    assert (one["id"], one["error"]) == ("shop/53/divider", "ZeroDivisionError: division by zero")
    assert ask("resume", "divider").out == "nothing to do: it has no fault, it is ready\n"
    assert lines(ask("skip", "divider", "--json")) == [
        {"id": "shop/53/divider", "done": "", "fault": None, "error": None}
    ]
    asyncio.run(with_client(filled, operated.run))
    said = ask("skip", "divider").out
    assert said.startswith("asked to drop its event, Divide: no living host: host-1.")
    assert said.endswith("; the next one does it\n")
    assert "division by zero; to be skipped" in ask("ls", "--faulted").out
    assert ask("resume", "--all").out == "0 asked to try again\n", "its event is to be skipped"
    asyncio.run(with_client(filled, operated.run))
    assert ask("ls", "--faulted", "--check").code == 1
    kinds = [one["kind"] for one in lines(ask("timeline", "divider", "--json"))]
    assert [kind for kind in kinds if kind in ("faults", "resume", "skip", "takes")] == [
        *("takes", "takes", "faults", "resume", "faults", "skip", "takes", "takes"),
    ]


@contextmanager
def living_host(url: str) -> Iterator[None]:
    """Run a host in a thread: commands have event loops of their own."""
    thread, stack = LoopThread("a host"), AsyncExitStack()

    async def enter() -> None:
        client = await stack.enter_async_context(boki.connect(url))
        await stack.enter_async_context(Host(APP, client.book("shop"), name="host-2", stuck_after_s=None))

    try:
        thread.run(enter())
        yield
        thread.run(stack.aclose())
    finally:
        thread.stop()


def test_a_living_host_is_named_and_decides_at_once(filled: str) -> None:
    def ask(*arguments: str) -> Outcome:
        return run_command_line("rsm", *arguments, "--book", "shop", "--url", filled)

    with living_host(filled):
        shown = ask("show", "divider").out
        assert "partition 53, host-2." in shown and " since 20" in shown and "no living" not in shown
        assert "no living" not in ask("ls").out and lines(ask("ls", "--json"))[0]["owner"]["alive"]
        assert ask("resume", "divider").out == "asked to try again, Divide\n"


def test_machines_without_a_host_and_events_to_no_machine_are_shown(url: str) -> None:
    async def send(client: boki.Client) -> None:
        rsm = Rsm(App("early", [Divider]), client.book("early"))
        made = await rsm.create(Divider, key="made")
        await rsm.send(made, Divide(1))
        await rsm.send(Ref.parse("early/3/never"), Divide(1))

    asyncio.run(with_client(url, send))

    def ask(*arguments: str) -> Outcome:
        return run_command_line("rsm", *arguments, "--book", "early", "--url", url)

    found = lines(ask("ls", "--json"))
    assert [(one["name"], one["status"], one["class"]) for one in found] == [
        ("made", "new", "Divider"),
        ("never", "absent", ""),
    ]
    assert "no host of this app was seen" in ask("ls").out
    assert "what was sent to it is dropped" in ask("show", "early/3/never").out
    assert [one["kind"] for one in lines(ask("timeline", "never", "--json"))] == ["arrives"]


def test_what_a_newer_program_wrote_is_refused_and_hides_nothing_else(filled: str) -> None:
    async def write(client: boki.Client) -> None:
        stream = tags.rsm_partition("shop", 53)
        await Log(client.book("shop")).append(Contribution((stream,), {}, (Newer("shop/53/divider"),)))

    asyncio.run(with_client(filled, write))

    def ask(*arguments: str) -> Outcome:
        return run_command_line("rsm", *arguments, "--book", "shop", "--url", filled)

    shown = ask("ls")
    assert (shown.code, len(shown.out.splitlines())) == (4, 5) and "upgrade it" in shown.err
    assert "Machines that need such a record are not shown; all others are." in shown.err
    for command in ("show", "resume", "skip"):
        ask(command, "shop/53/divider").refused("'rsm.newer', which this version does not know", code=4)
    told = ask("timeline", "shop/53/divider")
    assert told.code == 4 and "unreadable" in told.out.splitlines()[-1] and len(told.out.splitlines()) == 13
    assert ask("show", "gate", "--app", "shop").code == 0


def test_progress_is_shown_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for is_json in (False, True):
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        with command_parts.progress(Invocation(json=is_json), "reading the book") as counted:
            counted(7)
        assert ("reading the book" in terminal.getvalue()) is not is_json


@pytest.mark.processes
def test_help_imports_no_library() -> None:
    program = (
        "import sys; from boki_cli import main; from boki_cli.options import run; run(main.boki, ['rsm', '--help'])"
    )
    report = "print([name for name in ('bokirsm', 'bokilib', 'boki') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", f"{program}; {report}"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_command_is_an_entry_point() -> None:
    assert main.of_libraries()["rsm"].value == "bokirsm_tools.commands:register"
    group = CommandGroup("boki")
    commands.register(group)
    assert isinstance(group.commands["rsm"], CommandGroup)
    of_books = ["ls", "show", "timeline", "resume", "skip"]
    assert list(group.commands["rsm"].commands) == [*of_books, "test", "replay", "shrink"]
