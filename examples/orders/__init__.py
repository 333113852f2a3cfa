"""Exactly once across libraries: a queue of orders, stock objects, a workflow per order; and kill -9 (`python -m examples.orders`)."""
