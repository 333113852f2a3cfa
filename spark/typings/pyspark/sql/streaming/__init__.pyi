from typing import Any

class StreamingQuery:
    id: str
    def __getattr__(self, name: str) -> Any: ...
