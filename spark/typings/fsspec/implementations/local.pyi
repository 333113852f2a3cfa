from typing import Any

class LocalFileSystem:
    def find(self, path: str, **kwargs: Any) -> list[str]: ...
