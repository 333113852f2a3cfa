"""`boki ready` says whether the role of its settings is of use, in words and by its exit code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from boki_cli.cluster.ready_command import in_words, page_of
from boki_cli.roles import process_settings
from boki_common.cluster_token import NO_TOKEN, ClusterToken
from boki_common.errors import SettingsError
from boki_common.http.metrics_page import start_metrics_page
from boki_common.metrics import Metrics
from boki_common.net.connection import Address
from boki_common.runtime.loop_thread import LoopThread

if TYPE_CHECKING:
    from boki_cli.testing.commands import RunCommandLine


def test_the_page_is_asked_on_this_machine() -> None:
    assert page_of(process_settings(None, {"metrics_listen": "0.0.0.0:7079"})) == Address("127.0.0.1", 7079)
    assert page_of(process_settings(None, {"metrics_listen": "10.0.0.5:1"})) == Address("10.0.0.5", 1)
    with pytest.raises(SettingsError, match="BOKI_METRICS_LISTEN"):
        page_of(process_settings(None, {}))


def test_what_a_page_says_is_one_line() -> None:
    assert in_words(b'{"status": "not ready", "reasons": ["a", "b"]}') == "not ready; a; b"
    assert in_words(b"<html>") == "<html>"


@pytest.mark.parametrize("token", ["", "t" * 40])
def test_ready_not_ready_and_nobody(run_boki: RunCommandLine, tmp_path: Path, token: str) -> None:
    file = tmp_path / "token"
    file.write_text(token)
    file.chmod(0o600)
    flags = ("--token-file", str(file)) if token else ()
    reasons = ["the index has not caught up yet"]
    asks = ClusterToken((token,)) if token else NO_TOKEN
    thread = LoopThread("page of a test")
    page = thread.run(start_metrics_page(Metrics(), host="127.0.0.1", port=0, unready=lambda: reasons, token=asks))
    where = ("--metrics", f"127.0.0.1:{page.port}", *flags)
    try:
        done = run_boki("ready", *where)
        assert (done.code, done.out) == (1, "not ready; the index has not caught up yet\n")
        reasons.clear()
        done = run_boki("ready", *where)
        assert (done.code, done.out) == (0, "ready\n")
        assert run_boki("ready", "--json", *where).out == '{"ready":true,"said":"ready"}\n'
    finally:
        thread.run(page.close())
        thread.stop()
    run_boki("ready", *where).refused("no role answers", code=3)
