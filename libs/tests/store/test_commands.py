"""`boki store …` against a cluster in memory: what it prints for people and for programs, and with which exit codes it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from threading import Thread

import pytest

import boki
import boki.sync
import bokistore.sync
from boki_cli import main
from boki_cli.options import CommandGroup
from boki_cli.testing.commands import Outcome, memory_cluster, run_command_line
from bokistore_tools import commands

EVIL = 'a\x1b[31m\n"/ü'


@pytest.fixture
def url() -> Iterator[str]:
    with memory_cluster() as one:
        yield one


@pytest.fixture
def shop(url: str) -> Iterator[bokistore.sync.BokiStore]:
    with boki.sync.connect(url) as client:
        yield bokistore.sync.BokiStore(client.book("shop"))


@pytest.fixture
def run(url: str) -> Callable[..., Outcome]:
    return lambda *arguments: run_command_line("store", *arguments, "--book", "shop", "--url", url)


Run = Callable[..., Outcome]


def test_get(shop: bokistore.sync.BokiStore, run: Run) -> None:
    cart = shop.object("cart")
    cart.set("owner.name", "ann")
    cart.push("lines", {"sku": "fig", "count": 2})
    assert run("get", "cart", "owner.name") == (0, '"ann"\n', "")
    assert json.loads(run("get", "cart").out) == {"owner": {"name": "ann"}, "lines": [{"sku": "fig", "count": 2}]}
    one = json.loads(run("get", "cart", "lines.0.count", "--json", "--consistency", "linearizable").out)
    assert (one["object"], one["path"], one["value"], one["expires_ms"]) == ("cart", "lines.0.count", 2, None)
    first = str(cart.history()[0].seqnum)
    assert json.loads(run("get", "cart", "--at", first).out) == {"owner": {"name": "ann"}}
    cart.set("none", None)
    assert run("get", "cart", "none").out == "null\n", "null is a value"


def test_what_is_not_there_is_reported_with_an_exit_code(shop: bokistore.sync.BokiStore, run: Run) -> None:
    shop.object("cart").set("n", 1)
    assert run("get", "tart") == (4, "", "Error: there is no object 'tart' in the book 'shop' now\n")
    assert run("get", "cart", "m").err == "Error: nothing is at 'm' of 'cart' in the book 'shop' now\n"
    refused = run("get", "cart", "m", "--json")
    assert (refused.code, refused.out, json.loads(refused.err)["error"]) == (4, "", "NoSuchObject")
    assert run("get", "cart", "--at", str(2**60)).code == 2, "nothing is known of the future"
    assert run("get", "cart", "a\\").code == 2
    assert run("get", "cart", "--at", "0").code == 2
    missing = run_command_line("store", "get", "cart")
    assert (missing.code, "--book" in missing.err) == (2, True)
    away = ("--url", "boki://127.0.0.1:1", "--timeout", "0.2")
    assert run_command_line("store", "ls", "--book", "b", *away).code == 3


def test_a_list_of_nothing_says_so_and_fails_a_check(shop: bokistore.sync.BokiStore, run: Run) -> None:
    for options, what in [
        ((), "objects in the book 'shop'"),
        (("--prefix", "c"), "names that begin with 'c' in the book 'shop'"),
        (("user",), "ids in the collection 'user' of the book 'shop'"),
    ]:
        assert run("ls", *options) == (0, "", f"There are no {what}.\n")
        assert run("ls", *options, "--check") == (1, "", f"There are no {what}.\n")
    shop.object("cart").set("n", 1)
    assert run("ls", "--check", "--consistency", "linearizable") == (0, "cart\n", "")


def test_ls(shop: bokistore.sync.BokiStore, run: Run) -> None:
    users = shop.collection("user", dict)
    for id in ("bob", "ann", EVIL):
        users.create(id, {"id": id})
    for name in ("cart/2", "cart/1", "gone"):
        shop.object(name).set("n", 1)
    shop.delete("gone")
    escaped = 'user/a\\x1b[31m\\n"/ü'
    assert run("ls").out.splitlines() == ["cart/1", "cart/2", escaped, "user/ann", "user/bob"]
    exact = [json.loads(line) for line in run("ls", "user", "--json").out.splitlines()]
    assert exact == [{"id": id, "object": f"user/{id}"} for id in (EVIL, "ann", "bob")]
    assert run("ls", "--prefix", "cart/", "--limit", "1").out == "cart/1\n"
    assert run("ls", "user", "--prefix", "b").out == "bob\n"
    assert run("ls", "nobody").out == ""
    assert run("ls", "a/b").code == 2, "no name of a collection"
    first = str(shop.object("user/bob").history()[0].seqnum)
    assert run("ls", "--at", first).out == "user/bob\n"
    assert run("ls", "user", "--at", first).out == "bob\n"


def test_ls_passes_over_what_no_store_wrote(url: str, shop: bokistore.sync.BokiStore, run: Run) -> None:
    with boki.sync.connect(url) as client:
        client.book("shop").append(b"of another program", tags=["store/o/x"])
    shop.object("cart").set("n", 1)
    assert run("ls").out == "cart\n"


def test_history(shop: bokistore.sync.BokiStore, run: Run) -> None:
    cart = shop.object("cart")
    cart.apply(bokistore.Inc("n", 2), bokistore.Push("log", "a", 5))
    with shop.transaction() as tx:
        tx["cart"].set("", {"n": 0})
    shop.delete("cart")
    lines = run("history", "cart").out.splitlines()
    assert [line.split()[-1] for line in lines if not line.startswith(" ")] == ["operations", "transaction", "deleted"]
    assert [line.strip() for line in lines if line.startswith(" ")] == [
        "inc n 2",
        'push log "a" limit 5',
        'set (object) {"n":0}',
    ]
    versions = [json.loads(line) for line in run("history", "cart", "--json").out.splitlines()]
    assert [one["value"] for one in versions] == [{"n": 2, "log": ["a"]}, {"n": 0}, None]
    assert versions[0]["operations"] == [["inc", "n", 2], ["push", "log", "a", 5]]
    newest = run("history", "cart", "--limit", "1", "--values").out
    assert newest.splitlines()[1:] == ["    (none)"]
    middle = str(versions[1]["seqnum"])
    ranged = run("history", "cart", "--from", middle, "--to", str(versions[2]["seqnum"]), "--json").out.splitlines()
    assert [json.loads(line)["seqnum"] for line in ranged] == [versions[1]["seqnum"]]
    nothing = "There are no records of 'nothing' in the book 'shop'.\n"
    assert run("history", "nothing") == (0, "", nothing)
    assert run("history", "nothing", "--check") == (1, "", nothing)
    assert run("history", "cart", "--check").code == 0


def test_diff(shop: bokistore.sync.BokiStore, run: Run) -> None:
    cart = shop.object("cart")
    cart.set("", {"same": 1, "n": 1, "old": EVIL})
    before = str(cart.history()[0].seqnum)
    assert run("diff", "cart", before, "--check") == (0, "", "")
    cart.set("", {"same": 1, "n": 2, "new": [True]})
    changed = run("diff", "cart", before)
    assert changed.code == 0
    assert changed.out.splitlines() == ["~ n  1 → 2", '- old  "a\\u001b[31m\\n\\"/ü"', "+ new  [true]"]
    output = run("diff", "cart", before, "--check", "--json")
    assert output.code == 1
    assert [json.loads(line) for line in output.out.splitlines()] == [
        {"path": "n", "before": 1, "after": 2},
        {"path": "old", "before": EVIL},
        {"path": "new", "after": [True]},
    ]
    assert run("diff", "cart", before, before, "--check").code == 0


def test_diff_of_an_object_that_is_not_there(shop: bokistore.sync.BokiStore, run: Run) -> None:
    shop.object("cart").set("n", 1)
    position = str(shop.object("cart").history()[0].seqnum)
    unknown = run("diff", "card", position)
    assert unknown.code != 0 and "there is no object 'card' in the book 'shop'" in unknown.err
    checked = run("diff", "card", position, "--check")
    assert (checked.code, checked.out) == (1, "") and "there is no object 'card'" in checked.err


def test_watch(shop: bokistore.sync.BokiStore, run: Run) -> None:
    cart = shop.object("cart")
    cart.set("n", 1)
    first = str(cart.history()[0].seqnum)
    cart.inc("n")
    assert run("watch", "cart", "--from", first, "--limit", "2").out.splitlines() == [
        first,
        '    + (object)  {"n":1}',
        str(cart.history()[1].seqnum),
        "    ~ n  1 → 2",
    ]
    behind = str(cart.history()[1].seqnum + 1)
    other = Thread(target=lambda: cart.set("n", 5))
    other.start()
    followed = run("watch", "cart", "--json", "--limit", "1", "--from", behind)
    other.join(20)
    watched = json.loads(followed.out)
    assert (watched["before"], watched["after"], watched["resync"]) == ({"n": 2}, {"n": 5}, False)
    assert watched["changes"] == [{"path": "n", "before": 2, "after": 5}]


def test_every_command_has_help_with_an_example() -> None:
    group = CommandGroup()
    commands.register(group)
    store = group.commands["store"]
    assert isinstance(store, CommandGroup)
    assert sorted(store.commands) == ["diff", "get", "history", "ls", "watch"]
    for name in store.commands:
        text = run_command_line("store", name, "--help").out
        assert f"boki store {name} " in text.partition("\n\n")[2], name


@pytest.mark.processes
@pytest.mark.parametrize("arguments", [["--help"], ["store", "--help"], ["store", "get", "--help"], ["read", "--help"]])
def test_help_imports_no_library(arguments: list[str]) -> None:
    program = f"import sys; from boki_cli import main; from boki_cli.options import run; run(main.boki, {arguments})"
    report = "print([name for name in ('bokistore', 'bokilib', 'numpy', 'boki') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", f"{program}; {report}"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.processes
def test_a_shell_completes_them() -> None:
    line = {"COMP_WORDS": "boki store hi", "COMP_CWORD": "2", "_BOKI_COMPLETE": "bash_complete"}
    command = [sys.executable, "-m", "boki_cli.main"]
    done = subprocess.run(command, env=os.environ | line, capture_output=True, text=True, check=True)
    assert done.stdout == "plain,history\n"


def test_the_command_is_an_entry_point() -> None:
    assert main.of_libraries()["store"].value == "bokistore_tools.commands:register"
