"""The commands `boki flow …` against a cluster in memory: their output for people and programs, and their exit codes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import boki
import bokiflow
from boki_cli import main
from boki_cli.options import CommandGroup
from boki_cli.testing.commands import Outcome, memory_cluster, run_command_line
from bokiflow import Firing, Schedule, Skipped, Timing, Worker
from bokiflow.runtime.calls import named
from bokiflow_tools import commands, schedule_commands
from libs.tests.flow.conftest import Inline
from libs.tests.flow.shop import Shop

Run = Callable[..., Outcome]
SHOP = Shop()
APP = SHOP.app
"""As `--app` finds it."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Return the URL of a book with a workflow that ended, one that failed, one that waits, and one with hostile names."""
    with memory_cluster() as one:
        asyncio.run(fill(one))
        yield one


async def fill(url: str) -> None:
    async with boki.connect(url) as client, Worker(APP, client.book("shop"), name="w", bodies=Inline()) as worker:
        assert await (await worker.start(SHOP.steps.call(2), id="good", attributes={"who": "ann"})).result() == 1
        failing = await worker.start(SHOP.fail.call("no"), id="bad")
        with pytest.raises(ValueError, match="no"):
            await failing.result()
        assert await (await worker.start(SHOP.parent.call(1), id="a\x1b[31m\nb")).result() == 0
        waits = await worker.start(SHOP.wait.call(2), id="waits")
        await waits.signal("go", 1)
        assert await anext(waits.events("got")) == 1
        while "step" not in [one.kind async for one in waits.steps()]:  # one that is drained begins none
            await asyncio.sleep(0)
        await worker.drain()


@pytest.fixture
def run(url: str) -> Run:
    return lambda *arguments: run_command_line("flow", *arguments, "--url", url)


def lines(outcome: Outcome) -> list[dict[str, object]]:
    assert outcome.code == 0, outcome.err
    return [json.loads(line) for line in outcome.out.splitlines()]


def test_ls_shows_the_newest_first_and_only_what_is_asked_for(run: Run) -> None:
    shown = run("ls", "--book", "shop").out.splitlines()
    assert [line.split()[0] for line in shown[:2]] == ["running", "completed"]
    assert "a\\x1b[31m\\nb" in "".join(shown), "what others wrote moves no cursor"
    assert "who=ann" in shown[-1] and shown[-1].split()[0] == "completed"
    (bad,) = [line for line in shown if line.startswith("failed")]
    assert bad.endswith("  ValueError: no"), "what failed says why"
    found = lines(run("ls", "--book", "shop", "--status", "running", "--status", "failed", "--json"))
    assert [(one["id"], one["status"]) for one in found] == [("waits", "running"), ("bad", "failed")]
    assert [one["id"] for one in lines(run("ls", "--book", "shop", "--attribute", "who=ann", "--json"))] == ["good"]
    assert [one["id"] for one in lines(run("ls", "--book", "shop", "--name", "fail", "--json"))] == ["bad"]
    assert run("ls", "--book", "shop", "--until", "1h").out == ""
    assert run("ls", "--book", "shop", "--attribute", "who").code == 2


def test_ls_goes_page_by_page(run: Run) -> None:
    first = lines(run("ls", "--book", "shop", "--limit", "1", "--json"))
    assert first[0]["id"] == "waits" and set(first[1]) == {"group", "before"}
    behind = lines(run("ls", "--book", "shop", "--limit", "50", "--before", str(first[1]["before"]), "--json"))
    assert behind[-1]["id"] == "good" and "waits" not in [one.get("id") for one in behind]
    assert "--before" in run("ls", "--book", "shop", "--limit", "1").err


def test_ls_of_several_apps_is_one_list_of_so_many(url: str, run: Run) -> None:
    async def start() -> None:
        async with boki.connect(url) as client:
            for number in range(6):
                async with bokiflow.Flow(bokiflow.App(f"app {number % 2}"), client.book("apps")) as flow:
                    await flow.start(SHOP.steps.call(1), id=f"x{number}")

    asyncio.run(start())
    assert len(run("ls", "--book", "apps", "--limit", "2").out.splitlines()) == 2
    seen, more = list[object](), list[str]()
    for _ in range(3):
        found = lines(run("ls", "--book", "apps", "--limit", "2", "--json", *more))
        seen += [one["id"] for one in found if "id" in one]
        more = ["--before", str(found[-1].get("before"))]
    assert seen == [f"x{number}" for number in reversed(range(6))]


def test_ls_says_that_there_is_nothing(run: Run) -> None:
    for arguments, words in (
        (("--book", "nothing"), "There are no workflows in the book 'nothing'.\n"),
        (("--book", "shop", "--name", "nothing"), "No workflow of the book 'shop' matches the filters.\n"),
        (("--book", "shop", "--group", "stop"), "There is no app 'stop' in the book 'shop'.\n"),
        (
            ("--book", "shop", "--group", "shop", "--name", "nothing"),
            "No workflow of the app 'shop' in the book 'shop' matches the filters.\n",
        ),
    ):
        assert run("ls", *arguments) == (0, "", words)
        assert run("ls", *arguments, "--check") == (1, "", words)
        assert told(run("ls", *arguments, "--check", "--json"))
    assert run("ls", "--book", "shop", "--check").code == 0
    assert run("ls", "--book", "shop", "--before", "x").code == 2


def told(failed: Outcome) -> str:
    """Return why a check with --json failed."""
    error = json.loads(failed.err)
    assert (failed.code, failed.out, error["error"]) == (1, "", "CheckFailed")
    return str(error["message"])


@pytest.mark.parametrize(
    ("book", "hint"),
    [
        ("shop", "was it started in this book, and is it kept still?"),
        ("nothing", "the book has no records, is its name right?"),
    ],
)
@pytest.mark.parametrize("command", ["show", "steps", "result", "signal", "cancel", "terminate", "resume", "fork"])
def test_a_workflow_that_is_not_there_is_said(run: Run, command: str, book: str, hint: str) -> None:
    arguments = (command, "nobody", *(["go"] if command == "signal" else []), "--book", book)
    words = f"there is no workflow 'nobody': {hint}\n"
    assert run(*arguments) == (2, "", f"Error: {words}")
    assert run(*arguments, "--check") == (1, "", words)
    assert f"{told(run(*arguments, '--check', '--json'))}\n" == words


def test_check_of_a_workflow_that_is_there_is_good(run: Run) -> None:
    for command in ("show", "steps", "result"):
        assert run(command, "good", "--book", "shop", "--check") == run(command, "good", "--book", "shop")
    assert run("cancel", "good", "--book", "shop", "--check").code == 0
    assert run("result", "bad", "--book", "shop", "--check").code == 1


@pytest.mark.parametrize("command", [("resume", "--all"), ("gc",)])
def test_a_book_or_an_app_that_is_not_there_is_said(run: Run, command: tuple[str, ...]) -> None:
    for where, words in (
        (("--book", "nothing"), "There are no workflows in the book 'nothing'.\n"),
        (("--book", "shop", "--group", "stop"), "There is no app 'stop' in the book 'shop'.\n"),
    ):
        found = run(*command, *where)
        assert (found.code, found.err) == (0, words)
        failed, as_json = run(*command, *where, "--check"), run(*command, *where, "--check", "--json")
        assert (failed.code, failed.err) == (1, words)
        assert (as_json.code, json.loads(as_json.err)["message"] + "\n") == (1, words)


def test_an_app_is_there_from_its_first_worker_on(url: str, run: Run) -> None:
    async def look() -> None:
        async with boki.connect(url) as client, Worker(APP, client.book("early"), name="w", bodies=Inline()):
            pass

    asyncio.run(look())
    assert run("gc", "--book", "early", "--group", "shop", "--check").code == 0
    assert run("ls", "--book", "early", "--group", "shop").err.startswith("No workflow of the app 'shop'")


def test_show(run: Run) -> None:
    shown = run("show", "good", "--book", "shop").out
    assert "status    completed" in shown and "call      steps(2)" in shown and "result    1" in shown
    assert "ValueError: no" in run("show", "bad", "--book", "shop").out
    (found,) = lines(run("show", "waits", "--book", "shop", "--json"))
    assert (found["status"], found["args"], found["group"]) == ("running", [[2], {}], "shop")
    assert (run("show", "nobody", "--book", "shop").code, run("show", "nobody", "--book", "other").code) == (2, 2)


def test_steps(run: Run) -> None:
    shown = run("steps", "waits", "--book", "shop").out.splitlines()
    assert [line.split()[3 if line.split()[1] == "ms" else 1] for line in shown]
    assert run("steps", "waits", "--book", "shop").err.startswith("A step is recorded when it ends")
    assert run("steps", "good", "--book", "shop").err == ""
    found = lines(run("steps", "waits", "--book", "shop", "--json"))
    assert [one["kind"] for one in found][:3] == ["signal", "emit", "step"]
    child = lines(run("steps", "a\x1b[31m\nb", "--book", "shop", "--json"))[0]
    assert child["kind"] == "child" and str(child["workflow"]).startswith("a\x1b[31m\nb/")


def test_signal_and_cancel(url: str, run: Run) -> None:
    async def start() -> None:
        async with boki.connect(url) as client, Worker(APP, client.book("more"), name="w", bodies=Inline()) as worker:
            await worker.start(SHOP.wait.call(1), id="x")
            await worker.start(SHOP.wait.call(1), id="y")
            await worker.drain()

    async def finish() -> object:
        async with boki.connect(url) as client, Worker(APP, client.book("more"), name="w", bodies=Inline()) as worker:
            return await worker.handle("x").result()

    asyncio.run(start())
    sent = run("signal", "x", "go", '{"a": 1}', "--book", "more").out
    assert sent.startswith("sent: no worker of this app is alive: w.")
    assert sent.endswith(", and has left; the next one delivers it\n")
    assert run("signal", "x", "go", "no json", "--book", "more").code == 2
    (cancelled,) = lines(run("cancel", "y", "--book", "more", "--reason", "late", "--json"))
    assert cancelled == {"id": "y", "status": "running", "done": "asked to end"}
    again = run("cancel", "y", "--book", "more").out
    assert again.startswith("asked to end: no worker of this app is alive: w.")
    assert again.endswith(", and has left; the next one does it, and `boki flow terminate` ends it without one\n")
    assert asyncio.run(finish()) == [{"a": 1}]
    assert run("cancel", "x", "--book", "more").out == "nothing to do: it is completed\n"
    assert run("cancel", "nobody", "--book", "more").code == 2


def test_fork_and_resume(url: str, run: Run) -> None:
    async def finish() -> object:
        async with boki.connect(url) as client, Worker(APP, client.book("forks"), name="w", bodies=Inline()) as worker:
            if await worker.flow.known("first") is None:
                return await (await worker.start(SHOP.steps.call(3), id="first")).result()
            return await worker.handle("again").result()

    assert asyncio.run(finish()) == 3
    keys = [one["key"] for one in lines(run("steps", "first", "--book", "forks", "--json")) if one["kind"] == "step"]
    assert run("fork", "first", "--book", "forks", "--id", "again", "--before", str(keys[1])) == (
        *(0, "again\n"),
        f"Steps that ran after it and are not undone: {keys[1]} add, {keys[2]} add; `--before {keys[0]}` begins anew.\n",
    )
    assert run("resume", "again", "--book", "forks").out == "asked to try again\n"
    assert asyncio.run(finish()) == 3
    assert run("resume", "again", "--book", "forks").out == "nothing to do: it is completed\n"
    (made,) = lines(run("fork", "first", "--book", "forks", "--json"))
    assert made["origin"] == "first" and made["id"]
    assert run("fork", "first", "--book", "forks", "--before", "9:9").code == 2
    assert run("fork", "nobody", "--book", "forks").code == 2


def test_result_says_how_it_ended(run: Run) -> None:
    assert run("result", "good", "--book", "shop") == (0, "1\n", "")
    (found,) = lines(run("result", "good", "--book", "shop", "--json"))
    assert found == {"id": "good", "status": "completed", "result": 1}
    failed = run("result", "bad", "--book", "shop")
    assert failed.code == 1 and "is failed: ValueError: no" in failed.err
    assert run("result", "nobody", "--book", "shop").code == 2


def test_result_says_that_no_worker_is_alive_and_waits_no_longer_than_asked(run: Run) -> None:
    shown = run("result", "waits", "--book", "shop", "--wait", "0.1")
    waits, error = shown.err.splitlines()
    assert shown.code == 4 and shown.out == ""
    assert waits.startswith("Waits for workflow 'waits': no worker of this app is alive: w.")
    assert waits.endswith(" ago, and has left.")
    assert (
        error == waits.replace("Waits for workflow 'waits'", "Error: workflow 'waits' has not ended after 0.1 s")[:-1]
    )
    assert json.loads(run("result", "waits", "--book", "shop", "--wait", "0.1", "--json").err)["error"] == "NotEnded"
    assert run("result", "good", "--book", "shop", "--wait", "9") == (0, "1\n", "")


def test_resume_all_asks_for_those_that_an_error_blocks(url: str, run: Run) -> None:
    async def block() -> None:
        old = bokiflow.App("shop")
        async with boki.connect(url) as client, Worker(old, client.book("stuck"), name="w", bodies=Inline()) as worker:
            for id in ("x", "y"):
                await worker.start(SHOP.steps.call(2), id=id)
            while len(await worker.flow.blocked("NotRegistered")) < 2:
                await asyncio.sleep(0)
            await worker.drain()

    async def finish() -> list[object]:
        async with boki.connect(url) as client, Worker(APP, client.book("stuck"), name="w", bodies=Inline()) as worker:
            return [await worker.handle(id).result() for id in ("x", "y")]

    asyncio.run(block())
    stuck = run("result", "x", "--book", "stuck")
    assert stuck.code == 4 and "NotRegistered: this program has no workflow 'steps'" in stuck.err
    none = ("resume", "--all", "--error", "NonDeterminism", "--book", "stuck")
    words = "No workflow of the book 'stuck' is blocked by NonDeterminism.\n"
    assert run(*none) == (0, "0 asked to try again\n", words)
    assert told(run(*none, "--check", "--json"))
    resumed = run("resume", "x", "--book", "stuck").out
    assert resumed.startswith("asked to try again: no worker of this app is alive: w.")
    assert resumed.endswith(", and has left; the next one tries it\n")
    asked = run("resume", "--all", "--book", "stuck")
    assert asked.out == "2 asked to try again\n"
    assert asked.err.startswith("What is blocked of the app 'shop' waits for a worker: no worker of this app is alive:")
    found = lines(run("resume", "--all", "--error", "NotRegistered", "--group", "shop", "--book", "stuck", "--json"))
    assert [one["id"] for one in found] == ["x", "y"]
    for wrong in (("x", "--all"), (), ("x", "--error", "NonDeterminism")):
        assert run("resume", *wrong, "--book", "stuck").code == 2
    assert asyncio.run(finish()) == [1, 1]


def test_start_by_name_is_run_by_a_worker_of_the_app(url: str, run: Run) -> None:
    async def work() -> list[object]:
        async with boki.connect(url) as client, Worker(APP, client.book("named"), name="w", bodies=Inline()) as worker:
            return [await worker.handle(id).result() for id in ("x", "y")]

    where = ("--book", "named", "--group", "shop")
    made = run("start", "steps", "--id", "x", "--args", "[3]", *where)
    assert made == (0, "x\n", "It waits for a worker: no worker of this app was seen.\n")
    (found,) = lines(
        run("start", "steps", "--id", "y", "--args", '{"count": 2}', "--attribute", "k=v", "--book", "named", "--json")
    )
    assert found == {"id": "y", "name": "steps", "group": "shop", "alive": False, "has_code": None}
    assert run("start", "steps", "--id", "x", "--args", "[3]", *where).out == "x\n", "it is the same call"
    assert run("start", "steps", "--id", "x", "--args", "[4]", *where).code == 2
    for wrong in (("--args", "3"), ("--args", "["), ("--attribute", "k"), ("--book", "nothing")):
        assert run("start", "steps", "--book", "named", *wrong).code == 2
    assert asyncio.run(work()) == [3, 1]
    assert [one["id"] for one in lines(run("ls", "--book", "named", "--attribute", "k=v", "--json"))] == ["y"]


def test_terminate_ends_what_no_worker_runs(url: str, run: Run) -> None:
    async def start() -> None:
        async with boki.connect(url) as client, bokiflow.Flow(bokiflow.App("gone"), client.book("ended")) as flow:
            await flow.start(SHOP.steps.call(1), id="x")

    asyncio.run(start())
    assert run("terminate", "x", "--book", "ended", "--reason", "its code is gone").out == "terminated\n"
    assert run("terminate", "x", "--book", "ended").out == "nothing to do: it is cancelled\n"
    ended = run("result", "x", "--book", "ended")
    assert ended.code == 1 and "was terminated (its code is gone)" in ended.err


def test_gc_is_one_round_of_each_app(run: Run) -> None:
    assert "histories" in run("gc", "--book", "shop").out
    (found,) = lines(run("gc", "--book", "shop", "--group", "shop", "--json"))
    assert found["group"] == "shop" and found["forgotten"] == 0
    assert "completed" in run("show", "good", "--book", "shop").out, "a result is kept for a week"


def test_replay(run: Run, tmp_path: Path) -> None:
    program = "libs.tests.flow.test_commands:APP"
    assert run("replay", "good", "--book", "shop", "--app", program).out == "it fits, and waits for nothing\n"
    (found,) = lines(run("replay", "waits", "--book", "shop", "--app", program, "--json"))
    assert found == {"fits": True, "waits": ["signal 'go'"]}
    kept = tmp_path / "good.json"
    assert run("replay", "good", "--book", "shop", "--save", str(kept)).code == 0
    assert run("replay", "--history", str(kept), "--app", program).code == 0
    kept.write_text(kept.read_text().replace('"add"', '"subtract"'))
    other = run("replay", "--history", str(kept), "--app", program)
    assert other.code == 1 and "add" in other.err and "subtract" in other.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("good", "--book", "shop"),
        ("good", "--app", "libs.tests.flow.test_commands:APP"),
        ("--app", "libs.tests.flow.test_commands:APP"),
        ("good", "--book", "shop", "--app", "libs.tests.flow.test_commands"),
        ("good", "--book", "shop", "--app", "libs.tests.flow.nowhere:APP"),
        ("good", "--book", "shop", "--app", "libs.tests.flow.test_commands:nobody"),
        ("good", "--book", "shop", "--app", "libs.tests.flow.test_commands:SHOP"),
        ("--history", "/nowhere/x.json", "--app", "libs.tests.flow.test_commands:APP"),
        ("good", "--book", "shop", "--save", "/nowhere/x.json"),
    ],
)
def test_replays_that_are_asked_for_wrongly_say_what_was_expected(run: Run, arguments: tuple[str, ...]) -> None:
    outcome = run("replay", *arguments)
    assert outcome.code == 2 and outcome.err


def test_replay_with_a_program_that_cannot_be_imported_is_a_fault_of_the_program(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "shop_without_settings.py"
    file.write_text('raise ValueError("SHOP_URL is not set")')
    monkeypatch.syspath_prepend(tmp_path)
    outcome = run("replay", "good", "--book", "shop", "--app", "shop_without_settings:app")
    assert outcome.code == 2
    assert f"importing 'shop_without_settings' failed: ValueError: SHOP_URL is not set ({file}, line 1)" in outcome.err


def test_every_command_has_help_with_an_example() -> None:
    group = CommandGroup()
    commands.register(group)
    flow = group.commands["flow"]
    assert isinstance(flow, CommandGroup)
    assert sorted(flow.commands) == [
        *(
            "cancel",
            "fork",
            "gc",
            "ls",
            "replay",
            "result",
            "resume",
            "schedule",
            "schedules",
            "show",
            "signal",
            "start",
            "steps",
            "terminate",
        )
    ]
    schedule = flow.commands["schedule"]
    assert isinstance(schedule, CommandGroup) and sorted(schedule.commands) == ["delete", "pause", "resume", "run"]
    for name in [*flow.commands.keys() - {"schedule"}, *(f"schedule {one}" for one in schedule.commands)]:
        text = run_command_line("flow", *name.split(), "--help").out
        assert f"boki flow {name} " in text.partition("\n\n")[2], name


@pytest.mark.processes
def test_help_imports_no_library() -> None:
    program = (
        "import sys; from boki_cli import main; from boki_cli.options import run; run(main.boki, ['flow', '--help'])"
    )
    report = "print([name for name in ('bokiflow', 'bokilib', 'boki') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", f"{program}; {report}"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_command_is_an_entry_point() -> None:
    assert main.of_libraries()["flow"].value == "bokiflow_tools.commands:register"


NEXT = ", and has left; the next one does it\n"
"""The end of the output of a command for workers, after the only worker has left."""


def test_schedules_are_listed_paused_resumed_and_deleted(url: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fill() -> None:
        app = bokiflow.App("office")

        @app.workflow
        async def report(what: str) -> None: ...

        app.schedule("nightly", report.call("sales"), cron="30 2 * * MON-FRI", timezone="Europe/Berlin")
        app.schedule("rare", report.call("seats"), every_s=86_400, missed="skip", late_s=5)
        async with boki.connect(url) as client, Worker(app, client.book("plans"), name="w", bodies=Inline()) as worker:
            while len(await worker.flow.schedules.list()) < 2:
                await asyncio.sleep(0)
            await worker.drain()

    def obeyed(name: str) -> None:
        """Let a worker deliver commands that were sent to a schedule."""

        async def deliver() -> None:
            app = bokiflow.App("office")
            async with boki.connect(url) as client, Worker(app, client.book("plans"), name="w") as worker:
                while not [one async for one in worker.handle(f"schedule/{name}").steps() if one.kind == "emit"][sent:]:
                    await asyncio.sleep(0)
                await worker.drain()

        asyncio.run(deliver())

    asyncio.run(fill())
    sent = 1
    nightly, rare = run("schedules", "--book", "plans", "--check").out.splitlines()
    assert nightly.startswith('nightly  30 2 * * MON-FRI Europe/Berlin  report("sales")  next ')
    assert nightly.endswith("  missed=last late_s=60") and rare.endswith("  missed=skip late_s=5")
    assert rare.startswith('rare  every 86400 s  report("seats")  next ')
    paused = run("schedule", "pause", "nightly", "--book", "plans").out
    assert paused.startswith("asked in office: no worker of this app is alive: w.") and paused.endswith(NEXT)
    assert "  pause asked  " in run("schedules", "--book", "plans").out.splitlines()[0]
    obeyed("nightly")
    assert "  paused  missed" in run("schedules", "--book", "plans").out.splitlines()[0]
    assert run("schedule", "delete", "rare", "--book", "plans", "--group", "office").out.endswith(NEXT)
    assert "  deletion asked  " in run("schedules", "--book", "plans").out.splitlines()[1]
    assert "schedule  active" in run("show", "schedule/rare", "--book", "plans").out.splitlines()
    obeyed("rare")
    assert "schedule  deleted" in run("show", "schedule/rare", "--book", "plans").out.splitlines()
    assert lines(run("show", "schedule/rare", "--book", "plans", "--json"))[0]["schedule"] == "deleted"
    rows = run("ls", "--book", "plans", "--name", "boki.schedule").out.splitlines()
    assert sorted("  schedule deleted" in row for row in rows) == [False, True] and "  schedule paused" in "".join(rows)
    (left,) = lines(run("schedules", "--book", "plans", "--json"))
    assert (left["name"], left["next_ms"], left["cron"]) == ("nightly", None, "30 2 * * MON-FRI")
    assert run("schedule", "resume", "nightly", "--book", "plans").code == 0
    sent = 2
    obeyed("nightly")
    assert "next " in run("schedules", "--book", "plans").out
    monkeypatch.setattr(schedule_commands, "OVERDUE_MS", -7 * 86_400_000)  # as if a week had passed
    assert ": w." in run("schedules", "--book", "plans").out.partition("  overdue since ")[2], (
        "the worker that was seen last"
    )
    assert run("schedules", "--book", "plans", "--check")[::2] == (
        1,
        "Overdue, or kept from starting anything: nightly.\n",
    )
    nothing = run("schedules", "--book", "plan", "--check")
    assert nothing == (1, "", "There are no schedules of the book 'plan'.\n")
    described = " ".join(run("schedules", "--help").out.split())
    assert "--check Exit code 1 if there are no schedules, or one is overdue, has an error," in described
    (ran,) = lines(run("schedule", "run", "nightly", "--book", "plans", "--json"))
    assert (ran["name"], ran["group"]) == ("nightly", "office") and str(ran["id"]).startswith("schedule/nightly/")
    assert "report('sales')" in run("show", str(ran["id"]), "--book", "plans").out.replace('"', "'")
    assert run("schedule", "run", "weekly", "--book", "plans").code == 2
    unknown = run("schedule", "pause", "weekly", "--book", "plans")
    assert unknown.code == 2 and "there is no schedule 'weekly'" in unknown.err and "nightly" in unknown.err


def test_a_schedule_whose_newest_firing_is_blocked_fails_the_check(url: str, run: Run) -> None:
    async def fill() -> None:
        app = bokiflow.App("renamed")
        app.schedule("often", named(app, "its old name").call(), every_s=0.1)
        async with (
            boki.connect(url) as client,
            Worker(app, client.book("renamed"), name="w", bodies=Inline()) as worker,
        ):
            while not await worker.flow.blocked("NotRegistered"):
                await asyncio.sleep(0)
            await worker.flow.schedules.pause("often")
            while not (await worker.flow.schedules.list())[0].paused:
                await asyncio.sleep(0)
            (schedule,) = await worker.flow.schedules.list()
            assert schedule.last is not None
            while await worker.handle(schedule.last.id).status() != "blocked":
                await asyncio.sleep(0)

    asyncio.run(fill())
    (facts,) = lines(run("schedules", "--book", "renamed", "--json"))
    assert isinstance(facts["last"], dict) and facts["last"]["status"] == "blocked"
    id = facts["last"]["id"]
    code, out, err = run("schedules", "--book", "renamed", "--check")
    assert (code, err) == (1, f"The newest firing is blocked, `boki flow show` says why: {id}.\n")
    assert " blocked  missed=last" in out and run("schedules", "--book", "renamed").code == 0
    assert "NotRegistered" in run("show", id, "--book", "renamed").out


def test_a_schedule_whose_newest_firing_failed_fails_the_check(url: str, run: Run) -> None:
    async def fill() -> None:
        app = bokiflow.App("failing")

        @app.workflow
        async def report() -> None:
            raise ValueError("no sales")

        app.schedule("often", report.call(), every_s=0.1)
        async with (
            boki.connect(url) as client,
            Worker(app, client.book("failing"), name="w", bodies=Inline()) as worker,
        ):
            schedules = worker.flow.schedules
            while not [one for one in await schedules.list() if one.last is not None]:
                await asyncio.sleep(0)
            await schedules.pause("often")
            while not (await schedules.list())[0].paused:
                await asyncio.sleep(0)
            (schedule,) = await schedules.list()
            assert schedule.last is not None
            while await worker.handle(schedule.last.id).status() != "failed":
                await asyncio.sleep(0)

    asyncio.run(fill())
    (facts,) = lines(run("schedules", "--book", "failing", "--json"))
    assert isinstance(facts["last"], dict) and facts["last"]["status"] == "failed"
    code, out, err = run("schedules", "--book", "failing", "--check")
    assert (code, err) == (1, f"The newest firing failed, `boki flow show` says why: {facts['last']['id']}.\n")
    assert " failed  missed=last" in out and run("schedules", "--book", "failing").code == 0


def test_a_schedule_is_told_with_what_was_missed_and_by_whom() -> None:
    last = Firing("schedule/often/1970-01-01T00:00:01Z", 1_000, "failed")
    timing = Timing(every_s=1, missed="last", late_s=2.5)
    one = Schedule("often", "report", [["r"], {}], timing, False, 2_000, "pause", last, Skipped(3, 500, 700))
    facts = {"name": "often", "error": ""} | schedule_commands.schedule_facts(one, 2_000 + schedule_commands.OVERDUE_MS)
    assert (facts["overdue"], facts["missed"], facts["late_s"], facts["asked"]) == (False, "last", 2.5, "pause")
    assert facts["last"] == {"id": last.id, "due_ms": 1_000, "status": "failed"}
    assert facts["skipped"] == {"number": 3, "first_ms": 500, "last_ms": 700}
    facts |= schedule_commands.schedule_facts(one, 2_001 + schedule_commands.OVERDUE_MS)
    assert schedule_commands.schedule_line(facts, "no worker of this app was seen") == (
        'often  every 1 s  report("r")  overdue since 1970-01-01T00:00:02.000Z: no worker of this app was seen  pause asked  '
        "last 1970-01-01T00:00:01.000Z failed  missed=last late_s=2.5  skipped 3, the last of 1970-01-01T00:00:00.700Z"
    )
