"""Logs: one line per event, quiet until configured."""

from __future__ import annotations

import io
import json

import pytest
import structlog

from boki_common import logs
from boki_common.errors import SettingsError


def test_a_library_is_quiet_below_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    log = logs.get_logger("bookie")
    log.info("hidden")
    log.warning("shown")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "hidden" not in captured.err
    assert "level=warning source=bookie event=shown" in captured.err


def test_configuring_reaches_loggers_made_before_it() -> None:
    log = logs.get_logger("bookie").bind(ledger_id=7)
    stream = io.StringIO()
    logs.configure(level="debug", stream=stream)
    log.debug("entry added", entry_id=3, fence=True, key=b"\x01\xff", nothing=None)
    line = stream.getvalue()
    assert line.startswith("time=2") and line.endswith("\n") and line.count("\n") == 1
    assert 'level=debug source=bookie event="entry added" ledger_id=7 entry_id=3 fence=true key=01ff nothing=' in line


def test_an_exception_is_a_fact_and_its_traceback_stays_on_one_line() -> None:
    stream = io.StringIO()
    logs.configure(stream=stream)
    log = logs.get_logger("bookie")
    try:
        raise ValueError("two\nlines")
    except ValueError as fault:
        log.error("failed", error=fault, exc_info=True)
    line = stream.getvalue()
    assert line.count("\n") == 1
    assert r'error="ValueError: two\nlines"' in line
    assert "Traceback" in line


def test_json_lines() -> None:
    stream = io.StringIO()
    logs.configure(json=True, stream=stream)
    logs.get_logger("engine").info("term begun", term=3, address=("h", 1))
    found = json.loads(stream.getvalue())
    assert found | {"time": ""} == {
        "time": "",
        "level": "info",
        "source": "engine",
        "event": "term begun",
        "term": 3,
        "address": ["h", 1],
    }


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(SettingsError, match="expected a log level of debug, info, warning, error, found 'loud'"):
        logs.configure(level="loud")


def test_what_is_configured_for_a_while_is_put_back() -> None:
    outer, inner = io.StringIO(), io.StringIO()
    log = logs.get_logger("bookie")
    logs.configure(level="debug", stream=outer)
    with pytest.raises(ValueError, match="inside"), logs.configured(level="error", json=True, stream=inner):
        log.warning("hidden")
        log.error("shown")
        raise ValueError("inside")
    log.debug("back")
    assert json.loads(inner.getvalue())["event"] == "shown"
    assert outer.getvalue().endswith("event=back\n") and outer.getvalue().count("\n") == 1


def test_the_configuration_of_structlog_is_not_touched() -> None:
    before = structlog.get_config()
    logs.configure(level="debug", stream=io.StringIO())
    logs.get_logger("x").info("y")
    assert structlog.get_config() == before
    assert not structlog.is_configured()


class Refuses(io.StringIO):
    """A stream that takes nothing for a while."""

    fault: Exception | None = OSError(28, "No space left on device")

    def write(self, text: str, /) -> int:
        if self.fault is not None:
            raise self.fault
        return super().write(text)


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), ValueError("I/O operation on closed file")])
def test_lines_that_a_failing_stream_loses_are_counted_and_reported_not_raised(
    fault: Exception,
) -> None:
    stream = Refuses()
    stream.fault = fault
    log = logs.get_logger("bookie")
    before = logs.lost_lines()
    with logs.configured(stream=stream):
        log.info("one")
        log.error("two")
        stream.fault = None
        log.info("three")
        log.info("four")
    notice, *rest = stream.getvalue().splitlines()
    assert 'level=warning source=logs event="lines of the log were lost" count=2' in notice
    assert [line.rpartition("event=")[2] for line in rest] == ["three", "four"]
    assert logs.lost_lines() - before == 2


class Unspeakable:
    def __str__(self) -> str:
        raise ZeroDivisionError("a bug")


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError("a bug")


@pytest.mark.parametrize("json_lines", [True, False])
@pytest.mark.parametrize("fact", [Unspeakable(), UnspeakableError()])
def test_a_fact_that_cannot_be_rendered_costs_its_line_and_not_who_logs_it(fact: object, json_lines: bool) -> None:
    stream = io.StringIO()
    with logs.configured(stream=stream, json=json_lines):
        logs.get_logger("bookie").info("fenced", fact=fact)
    assert "fenced" in stream.getvalue()
    assert stream.getvalue().count("\n") == 1
