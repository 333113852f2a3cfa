from collections.abc import Callable
from typing import Any

get_return_value: Callable[..., Any]
