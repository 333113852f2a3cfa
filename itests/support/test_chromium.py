"""The browser of tests: the port of its driver, and what is said when the driver cannot begin."""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from boki_common.net.lasting_ports import FIRST
from itests.support import chromium

pytestmark = pytest.mark.chromium


def test_the_driver_listens_below_the_ports_of_the_kernel(tmp_path: Path) -> None:
    with chromium.chromium(tmp_path) as window, socket.create_server(("127.0.0.1", 0)) as kernels:
        if window is None:
            pytest.skip(chromium.NO_CHROMIUM)
        port = urlsplit(window).port
        assert port is not None
        assert FIRST <= port < kernels.getsockname()[1]


def test_a_driver_that_cannot_listen_tells_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(chromium, "lasting_port", lambda: taken.getsockname()[1])
        with pytest.raises(RuntimeError, match="ERR_ADDRESS_IN_USE"), chromium.chromium(tmp_path) as window:
            assert window is None
            pytest.skip(chromium.NO_CHROMIUM)
