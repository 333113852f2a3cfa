"""Replay recorded histories against today's code: `export` them, then `replay` them in tests. See docs/flow.md."""

from bokiflow.client.replayer import export, replay

__all__ = ["export", "replay"]
