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
