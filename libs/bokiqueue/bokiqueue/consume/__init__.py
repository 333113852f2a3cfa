"""Receiving messages: consumers, their messages, and handlers."""
