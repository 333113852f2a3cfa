"""Start or signal a workflow in the same record as other effects: contributions to a `bokilib.Atomic`. See docs/queue.md."""

from bokiflow.client.in_atomic import signalling, starting

__all__ = ["signalling", "starting"]
