"""Defects of users' programs, planted for tests that have to find them."""

from __future__ import annotations

from bokiflow import App

app = App("planted")


@app.step
async def pack(sku: str) -> str:
    return f"a box with {sku}"


@app.workflow
async def in_order_of_a_set(skus: list[str]) -> list[str]:
    """Run steps in the order of texts in a set, which differs in each process."""
    return [await pack(sku) for sku in set(skus)]


@app.workflow
async def in_order(skus: list[str]) -> list[str]:
    return [await pack(sku) for sku in dict.fromkeys(skus)]
