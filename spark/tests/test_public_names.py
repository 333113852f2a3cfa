"""The names that programs import from `boki_spark`."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed: make spark", exc_type=ImportError)

import boki_spark


def test_no_module_of_the_package_hides_a_public_function() -> None:
    for module in pkgutil.walk_packages(boki_spark.__path__, "boki_spark."):
        importlib.import_module(module.name)
    assert [name for name in boki_spark.__all__ if not callable(getattr(boki_spark, name))] == []
