"""Machines for programs without an event loop; see `bokirsm.client.sync`."""

from bokirsm.client.sync import Rsm

__all__ = ["Rsm"]
