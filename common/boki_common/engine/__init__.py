"""The protocol between SDK and engine."""
