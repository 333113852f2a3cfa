"""The house rules that no linter knows, held by a test. Each failure names file, line and what to do.

Exceptions are listed here with their reason, and an exception that is no longer needed fails too.
"""

from __future__ import annotations

import ast
import fnmatch
import gc
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]

pytestmark = pytest.mark.timeout(300)
"""All of the project is read, also while other tests have the processors."""

ROOMS: Final = ("common", "ledger", "bookie", "metalog", "logbook", "libs", "spark", "gateway", "sim", "cli")

FUNCTION_LINES: Final = 70
USUAL_FUNCTION_LINES: Final = 22
"""What 95 of 100 functions of the core have at most, from `def` to their last line, without their docstrings."""
TEST_NAME_CHARACTERS: Final = 79
"""Of the libraries and of Spark not yet."""

LONG_FUNCTIONS: Final[dict[str, str]] = {
    "libs/bokirsm/bokirsm/lane/lane.py:__init__": "names all that a lane remembers, a line each",
}
"""`path:name` → why it may be longer."""

MAY_SLEEP: Final = {
    "common/tests/runtime/test_code_watch.py": "code that blocks is the subject",
    "itests/faults/rounds.py": "how long a fault lasts is the subject",
    "itests/support/fault_proxy.py": "delays bytes on purpose",
    "itests/chaos/bank.py": "programs that pace themselves: how often they do something is the subject",
    "itests/chaos/app.py": "programs that pace themselves: how often they do something is the subject",
    "itests/chaos/strikes.py": "how long a strike lasts is the subject",
    "itests/chaos/trial.py": "waits for what other processes do, of which nobody tells it",
    "itests/museum/fence_race.py": "runs in the simulator's virtual time: nothing waits",
    "libs/tests/queue/test_simulated.py": "runs in the simulator's virtual time: nothing waits",
    "itests/museum/ledger_world.py": "runs in the simulator's virtual time: nothing waits",
    "itests/support/java_server.py": "polls a foreign process, which tells nobody when it serves",
    "libs/tests/flow/tables/test_cassandra_faults.py": "for how long a database is not there is the subject",
    "itests/support/cassandra.py": "polls a foreign process, which tells nobody when it serves",
    "ledger/tests/read/test_tail_schedules.py": "its loop has virtual time: nothing waits",
    "libs/tests/store/commit/test_group_commit.py": "runs in virtual time: nothing waits",
    "libs/tests/flow/test_hosts.py": "runs in virtual time: nothing waits",
    "libs/tests/flow/test_lock_hosts.py": "runs in virtual time: nothing waits",
    "libs/tests/flow/testing/test_virtual.py": "in virtual time, which is the subject",
    "libs/tests/flow/killer_program.py": "steps that take time, and block or end their process: that is the subject",
    "libs/tests/flow/lives.py": "steps that take time: their durations are the subject",
    "itests/wrong_code/app.py": "its workflows sleep, and one blocks its worker: that is the subject",
    "itests/wrong_code/trial.py": "waits for what other processes do, of which nobody tells it",
    "libs/tests/flow/shop.py": "a workflow's sleep is a record of the log: its duration is the subject",
    "libs/tests/flow/runtime/test_flow_loop.py": "its loop has a time that the test tells: nothing waits",
    "common/tests/metadata/conftest.py": "polls a store for what another session did: stores tell it late, and it is the subject",
}

VIRTUAL_TIME: Final = ("sim/tests/", "libs/tests/oracles/")
"""Tests in virtual time: an hour of sleep takes no time."""

TESTED_ELSEWHERE: Final[dict[str, str]] = {
    "libs/bokiqueue/bokiqueue/push/strays.py": "libs/tests/queue/test_made_again.py",
    "logbook/boki/_iterator.py": "logbook/tests/sdk/test_reader.py",
    "sim/boki_sim/world/links.py": "sim/tests/world/test_network.py",
    "logbook/boki_logbook/read/lookup.py": "logbook/tests/engine/read/test_reader.py",
    "logbook/boki_logbook/read/page.py": "logbook/tests/engine/read/test_reader.py",
    "bookie/boki_bookie/space/file_collection.py": "bookie/tests/space/test_garbage_collection.py",
    "bookie/boki_bookie/space/ledger_collection.py": "bookie/tests/space/test_garbage_collection.py",
    "bookie/boki_bookie/journal/next_segment.py": "bookie/tests/journal/test_journal.py",
    "metalog/boki_metalog/listed_process.py": "metalog/tests/sequencer/test_sequencer.py",
    "ledger/boki_ledger/write/ack_waiters.py": "ledger/tests/write/test_writer.py",
    "libs/bokiflow/bokiflow/history/ends.py": "libs/tests/flow/client/test_terminating.py",
    "libs/bokiflow/bokiflow/history/addresses.py": "libs/tests/flow/client/test_in_atomic.py",
    "libs/bokiflow/bokiflow/worker/upkeep.py": "libs/tests/flow/retention/test_collector.py",
    "libs/bokiflow/bokiflow/execute/inbox.py": "libs/tests/flow/execute/test_executor.py",
    "libs/bokiflow/bokiflow/execute/running_tasks.py": "libs/tests/flow/execute/test_executor.py",
    "libs/bokiflow/bokiflow/execute/record_builder.py": "libs/tests/flow/execute/test_executor.py",
    "libs/bokiflow/bokiflow/execute/open_telemetry.py": "libs/tests/flow/execute/test_traces.py",
    "ledger/boki_ledger/recover/end_search.py": "ledger/tests/recover/test_recovery.py",
    "ledger/boki_ledger/recover/fencing_reads.py": "ledger/tests/recover/test_recovery.py",
    "ledger/boki_ledger/metadata/own_metadata.py": "ledger/tests/write/test_writer.py",
    "ledger/boki_ledger/ports.py": "ledger/tests",
    "ledger/boki_ledger/recover/write_back.py": "ledger/tests/recover/test_recovery.py",
    "ledger/boki_ledger/read/replica_reads.py": "ledger/tests/read/test_reader.py",
    "common/boki_common/testing/*.py": "common/tests/net/test_deadlines.py",
    "ledger/boki_ledger/testing/*.py": "ledger/tests",
    "cli/boki_cli/testing/logs.py": "cli/tests/logs/test_log_verify.py",
    "gateway/boki_gateway/calls/call.py": "gateway/tests/calls/test_book_calls.py",
    "gateway/boki_gateway/testing.py": "gateway/tests",
    "logbook/boki/testing/container_fixtures.py": "itests/containers/test_for_users.py",
    "libs/bokiqueue/bokiqueue_tools/drawing.py": "libs/tests/queue/test_page.py",
    "libs/bokiqueue/bokiqueue_tools/wording.py": "libs/tests/queue/test_commands.py",
    "libs/bokirsm/bokirsm/testing/choices.py": "libs/tests/rsm/testing/test_leaks.py",
    "libs/bokirsm/bokirsm/testing/clients.py": "libs/tests/rsm/testing/test_run.py",
    "libs/bokirsm/bokirsm/testing/errors.py": "libs/tests/rsm/testing/test_decorator.py",
    "libs/bokirsm/bokirsm/testing/story.py": "libs/tests/rsm/testing/test_witness.py",
    "libs/bokirsm/bokirsm_tools/simulated_machines.py": "libs/tests/rsm/test_simulated.py",
    "libs/bokistore/bokistore_tools/drawing.py": "libs/tests/store/test_page.py",
    "libs/bokiflow/bokiflow/tables/applier.py": "libs/tests/flow/tables/test_tables.py",
    "libs/bokiflow/bokiflow/tables/memory.py": "libs/tests/flow/tables/test_ports.py",
    "libs/bokiflow/bokiflow/tables/swap_rules.py": "libs/tests/flow/tables/test_swaps.py",
    "libs/bokiflow/bokiflow/tables/swapping.py": "libs/tests/flow/tables/test_swaps.py",
    "libs/bokiflow/bokiflow/tables/transactions.py": "libs/tests/flow/tables/test_tables.py",
    "libs/bokiflow/bokiflow_tools/*_command*.py": "libs/tests/flow/test_commands.py",
    "libs/bokiflow/bokiflow_tools/command_parts.py": "libs/tests/flow/test_commands.py",
    "libs/bokiflow/bokiflow_tools/drawing.py": "libs/tests/flow/test_page.py",
    "libs/bokiflow/bokiflow_tools/picture.py": "libs/tests/flow/test_page.py",
    "libs/bokirsm/bokirsm_tools/command_parts.py": "libs/tests/rsm/test_commands.py",
    "libs/bokirsm/bokirsm_tools/drawing.py": "libs/tests/rsm/test_page.py",
    "common/boki_common/bookkeeper/bookie_marks.py": "common/tests/bookkeeper/test_bookie_mark.py",
    "common/boki_common/json_node.py": "common/tests/metadata/test_json_nodes.py",
    "common/boki_common/records/batch_layout.py": "common/tests/records/test_record_batch.py",
    "common/boki_common/records/tag_names.py": "common/tests/records/test_record_batch.py",
    "common/boki_common/engine/answers.py": "common/tests/engine/test_engine_protocol.py",
    "common/boki_common/metadata/kazoo_link.py": "common/tests/metadata/test_zookeeper.py",
    "common/boki_common/metadata/machine_facts.py": "common/tests/metadata/test_sqlite.py",
    "logbook/boki_logbook/append/next_entry.py": "logbook/tests/engine/append/test_appender.py",
    "logbook/boki_logbook/connection_ports.py": "logbook/tests/engine/test_server.py",
    "logbook/boki_logbook/apply/cut_applier.py": "logbook/tests/engine/apply/test_indexer.py",
    "logbook/boki_logbook/engine_status.py": "logbook/tests/engine/test_core.py",
    "logbook/boki_logbook/sequencer_calls.py": "logbook/tests/engine/apply/test_engine_log.py",
    "logbook/boki_logbook/whole_state.py": "logbook/tests/engine/state/test_snapshots_rebuild.py",
    "logbook/boki_logbook/read/waiting.py": "logbook/tests/engine/read/test_reader.py",
    "logbook/boki_logbook/testing/cluster.py": "logbook/tests/engine",
    "logbook/boki_logbook/testing/engines.py": "logbook/tests/engine/peers/test_forwarding.py",
    "cli/boki_cli/facts/backup.py": "cli/tests/cluster/test_backup_commands.py",
    "spark/boki_spark/cold_terms/cold_reads.py": "spark/tests/offload/test_offloader.py",
    "spark/boki_spark/offload/survey.py": "spark/tests/offload/test_offloader.py",
    "spark/boki_spark/offload/prove.py": "spark/tests/offload/test_offloader.py",
    "spark/boki_spark/testing/small_cluster.py": "spark/tests/read/test_entries.py",
    "logbook/boki_logbook/scan/metalogs.py": "cli/tests/logs/test_data_ledger.py",
    "logbook/boki_logbook/scan/verify.py": "cli/tests/logs/test_log_verify.py",
    "logbook/boki_logbook/scan/facts.py": "logbook/tests/engine/scan/test_pages.py",
    "logbook/boki_logbook/testing/plans.py": "logbook/tests/engine/scan",
    "logbook/boki_logbook/testing/logs.py": "logbook/tests/engine/apply/test_engine_log.py",
    "spark/boki_spark/source/data_source.py": "spark/tests/source/test_reader.py",
    "spark/boki_spark/testing/sink_model.py": "spark/tests/sink/test_sink_rules.py",
    "sim/boki_sim/checkers/findings.py": "sim/tests/checkers/test_check.py",
    "sim/boki_sim/checkers/order.py": "sim/tests/checkers/test_check.py",
    "sim/boki_sim/checkers/records.py": "sim/tests/checkers/test_check.py",
    "sim/boki_sim/outcome.py": "sim/tests/test_subjects.py",
    "sim/boki_sim/world/handles.py": "sim/tests/world/test_loop.py",
    "sim/boki_sim/world/process.py": "sim/tests/world/test_loop.py",
    "sim/boki_sim/world/transport.py": "sim/tests/world/test_network.py",
    "sim/boki_sim/nemesis/whom.py": "sim/tests/nemesis/test_nemesis.py",
    "sim/boki_sim/clusters/shape.py": "sim/tests/test_run.py",
    "sim/boki_sim/work/workload_numbers.py": "sim/tests/work/test_workload.py",
}
"""Module, or pattern of modules, without a test file of its name → the test file or folder that covers it."""

TESTS_OF_PACKAGE: Final = {
    "boki_logbook": "engine",
    "boki": "sdk",
    "bokilib": "lib",
    "bokistore": "store",
    "bokiqueue": "queue",
    "bokirsm": "rsm",
    "bokiflow": "flow",
}
"""Packages that share a folder → the folder of tests of each; the others have `tests` to themselves."""

MAY_USE_FILES: Final = {
    "common/boki_common/runtime/posix_disk.py": "the real disk",
    "common/boki_common/runtime/heap.py": "asks the system what the process takes up",
    "common/boki_common/runtime/token_file.py": "reads the cluster token, in a thread or before the event loop starts",
    "common/boki_common/net/lasting_ports.py": "asks /proc once, as it is imported, which ports the kernel gives away",
    "common/boki_common/metadata/sqlite.py": "the real embedded store",
    "common/boki_common/metadata/liveness.py": "asks /proc about processes, in the thread of the embedded store",
    "common/boki_common/metadata/machine_facts.py": "asks /proc, in the thread of the embedded store",
    "common/boki_common/metadata/kazoo_link.py": "reads the credential before it connects, in a thread",
    "common/boki_common/settings.py": "reads the settings file before the event loop starts",
    "logbook/boki/testing/containers.py": "asks /proc whose containers were left behind; blocks, as all of it",
    "spark/boki_spark/session.py": "writes the script that starts the wheel's Java",
    "libs/bokiflow/bokiflow_tools/replay_command.py": "a command: files of the user, before and after the event loop",
    "libs/bokirsm/bokirsm/testing/decorator.py": "the edge of pytest: witnesses, before and after tests",
    "libs/bokirsm/bokirsm_tools/testing_commands.py": "commands: files of the user, before and after the tests",
    "cli/": "the command is the edge: files of the user",
}
"""Who may open files by themselves; everybody else has the Disk port. Ruff bans the rest of the machine, see pyproject.toml."""

FILE_CALLS: Final = frozenset({"read_text", "read_bytes", "write_text", "write_bytes", "iterdir", "rglob"})

# Written in two parts, so that this file does not find itself.
UNFINISHED: Final = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
LOCAL_PATH: Final = re.compile(r"(?<![\w.])/(wo" + r"rk|ro" + r"ot|home/[a-z]+|Use" + r"rs/[a-z]+|op" + r"t/wheels)\b")
IGNORE: Final = re.compile(r"#\s*(noqa|type:\s*ignore|pyright:\s*ignore)(:\s*[A-Z0-9, ]+|\[[\w, -]+\])?\s*(.*)")
TEXT_SUFFIXES: Final = frozenset(
    {".py", ".pyi", ".md", ".toml", ".lock", ".yml", ".yaml", ".sh", ".txt", ".cfg", ".json", ""}
)


@cache
def repository_files() -> tuple[Path, ...]:
    """Every text file that is, or would be, in the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode == 0:
        files = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    else:
        files = [
            path for path in ROOT.rglob("*") if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
        ]
    return tuple(sorted(path for path in files if path.suffix in TEXT_SUFFIXES and path.is_file()))


def python_files() -> list[Path]:
    return [path for path in repository_files() if path.suffix == ".py" and not path.stem.endswith("_pb2")]


def modules() -> list[Path]:
    """The modules of the packages, without their tests."""
    return [path for path in python_files() if name_of(path).split("/")[0] in ROOMS and "/tests/" not in name_of(path)]


def files_of_tests() -> list[Path]:
    return [path for path in python_files() if "/tests/" in name_of(path) or name_of(path).startswith("itests/")]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a file.

    While it is made, garbage of earlier tests waits: a finalizer that logs a traceback parses a line of its own, after which
    Python 3.11 raises SystemError here (python/cpython#106905).
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(path.read_bytes(), filename=str(path))
    finally:
        if collects:
            gc.enable()


def calls(path: Path) -> Iterator[tuple[ast.Call, str]]:
    """Every call with the dotted name of what it calls ("" when that is no name)."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call):
            yield node, ast.unparse(node.func) if isinstance(node.func, (ast.Name, ast.Attribute)) else ""


def none(faults: list[str], remedy: str) -> None:
    assert not faults, f"{remedy}:\n  " + "\n  ".join(faults)


def test_functions_fit_on_a_screen() -> None:
    found: dict[str, int] = {}
    for path in python_files():
        for node in ast.walk(tree_of(path)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > FUNCTION_LINES:
                    found[f"{name_of(path)}:{node.name}"] = length
    faults = [f"{where}: {length} lines" for where, length in found.items() if where not in LONG_FUNCTIONS]
    none(faults, f"functions have at most {FUNCTION_LINES} lines; split by idea, not by length")
    none([where for where in LONG_FUNCTIONS if where not in found], "no longer long, take it off LONG_FUNCTIONS")


def test_most_functions_are_short() -> None:
    lengths = sorted(
        _lines_of_code(node)
        for path in modules()
        for node in ast.walk(tree_of(path))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    )
    assert lengths[len(lengths) * 95 // 100] <= USUAL_FUNCTION_LINES, "split by idea what grew"


def _lines_of_code(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of lines of a function without its docstring: to describe an argument makes no function longer."""
    first = function.body[0]
    described = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    docstring = (first.end_lineno or first.lineno) - first.lineno + 1 if described else 0
    return (function.end_lineno or function.lineno) - function.lineno + 1 - docstring


def test_names_of_tests_are_a_line() -> None:
    faults = [
        f"{name_of(path)}:{node.name}: {len(node.name)}"
        for path in files_of_tests()
        for node in ast.walk(tree_of(path))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.name.startswith("test_")
        and len(node.name) > TEST_NAME_CHARACTERS
    ]
    none(faults, f"names of tests have at most {TEST_NAME_CHARACTERS} characters: the situation and the outcome")


def test_modules_open_with_what_they_are() -> None:
    faults = [name_of(path) for path in python_files() if path.stat().st_size and not ast.get_docstring(tree_of(path))]
    none(faults, "a module opens with a docstring: what it is, its rules, what it does not know")


def test_errors_say_what_failed() -> None:
    faults = []
    for path in modules():
        for node in ast.walk(tree_of(path)):
            if not isinstance(node, ast.ClassDef) or ast.get_docstring(node):
                continue
            if any(_is_error(base) for base in node.bases):
                faults.append(f"{name_of(path)}:{node.lineno}: {node.name}")
    none(faults, "an error class says in its docstring what failed and who broke the contract")


def _is_error(base: ast.expr) -> bool:
    return isinstance(base, ast.Name) and (base.id.endswith(("Error", "Exception")) or base.id in _error_names())


@cache
def _error_names() -> frozenset[str]:
    errors = tree_of(ROOT / "common/boki_common/errors.py")
    return frozenset(node.name for node in errors.body if isinstance(node, ast.ClassDef))


def test_libraries_do_not_print() -> None:
    faults = [
        f"{name_of(path)}:{node.lineno}"
        for path in modules()
        if not name_of(path).startswith("cli/")
        for node, called in calls(path)
        if called in ("print", "sys.stdout.write", "sys.stderr.write")
    ]
    none(faults, "libraries return, raise or log; only the command line prints")


def test_files_are_the_disk_ports() -> None:
    faults = []
    for path in modules():
        if name_of(path).startswith(tuple(MAY_USE_FILES)):
            continue
        for node, called in calls(path):
            if called == "open" or (called.rpartition(".")[2] in FILE_CALLS and "." in called):
                faults.append(f"{name_of(path)}:{node.lineno}: {called}")
    none(faults, "only the Disk port touches files (or list the module in MAY_USE_FILES with its reason)")


def test_nothing_is_left_unfinished() -> None:
    faults = [
        f"{name_of(path)}:{number}: {line.strip()[:100]}"
        for path in repository_files()
        for number, line in enumerate(_lines(path), 1)
        if UNFINISHED.search(line)
    ]
    none(faults, "finish it, or file it; what is not built yet is absent")


def test_no_path_of_one_machine() -> None:
    faults = [
        f"{name_of(path)}:{number}: {line.strip()[:100]}"
        for path in repository_files()
        for number, line in enumerate(_lines(path), 1)
        if LOCAL_PATH.search(line)
    ]
    none(faults, "an absolute path of one machine means nothing on another")


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def test_every_ignored_lint_is_explained() -> None:
    """In tests the reason is the test: they break contracts on purpose."""
    faults = []
    for path in modules():
        for number, line in enumerate(_lines(path), 1):
            found = IGNORE.search(line)
            if found and not found[3].strip(" #-"):
                faults.append(f"{name_of(path)}:{number}: {line.strip()[:100]}")
    none(faults, "an ignored lint says why, after it on the same line")


def test_tests_do_not_sleep() -> None:
    faults = []
    for path in files_of_tests():
        if name_of(path) in MAY_SLEEP or name_of(path).startswith(VIRTUAL_TIME):
            continue
        for node, called in calls(path):
            if called in ("time.sleep", "sleep") or (called == "asyncio.sleep" and not _is_zero(node)):
                faults.append(f"{name_of(path)}:{node.lineno}: {ast.unparse(node)}")
    none(faults, "wait for the event itself; asyncio.sleep(0), which only yields, is fine")


def _is_zero(call: ast.Call) -> bool:
    return len(call.args) == 1 and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0


def test_tests_mirror_modules() -> None:
    """`common/boki_common/net/frames.py` is tested by `common/tests/net/test_frames.py` (or `test_frames_….py`).

    Where two packages share a folder, TESTS_OF_PACKAGE gives each its own: `logbook/tests/sdk/test_book.py`.
    """
    tests = [path.parent / path.stem for path in files_of_tests()]
    faults = []
    used = set()
    for path in modules():
        name = name_of(path)
        if not _decides_something(path):
            continue
        room, package, *folders = path.relative_to(ROOT).parts[:-1]
        if room == "libs":  # each library has a folder around its package, for its README
            folders = folders[1:]
        stem = f"test_{path.stem.strip('_')}"
        mirror = ROOT.joinpath(room, "tests", TESTS_OF_PACKAGE.get(package, ""), *folders, stem)
        if any(test == mirror or str(test).startswith(f"{mirror}_") for test in tests):
            continue
        patterns = [pattern for pattern in TESTED_ELSEWHERE if fnmatch.fnmatchcase(name, pattern)]
        used.update(patterns)
        if not patterns:
            faults.append(f"{name}: expected {name_of(mirror)}.py")
    none(faults, "each module with code has a test file of its name, or TESTED_ELSEWHERE names the one that covers it")
    none(sorted(TESTED_ELSEWHERE.keys() - used), "no longer needed, take it off TESTED_ELSEWHERE")
    none(
        [test for test in TESTED_ELSEWHERE.values() if not (ROOT / test).exists()],
        "TESTED_ELSEWHERE names what is no more",
    )


def _decides_something(path: Path) -> bool:
    """Whether a module has a function with a body; constants, protocols and plain types have none.

    What a role's settings and metric definitions declare is checked by `boki_common`'s own tests of both.
    """
    if path.stem in ("__init__", "__main__", "metric_definitions") or name_of(path).endswith("/settings.py"):
        return name_of(path) == "common/boki_common/settings.py"
    for node in ast.walk(tree_of(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            body = [
                part for part in node.body if not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))
            ]
            if body:
                return True
    return False


def test_packages_are_typed() -> None:
    packages = {path.parent for path in modules() if path.parent.parent.parent in (ROOT, ROOT / "libs")}
    assert packages
    none(
        [name_of(package) for package in sorted(packages) if not (package / "py.typed").exists()], "add a py.typed file"
    )
