from typing import Any

class DataType:
    def simpleString(self) -> str: ...

class StructField:
    name: str
    dataType: DataType
    nullable: bool
    def __init__(self, name: str, dataType: DataType, nullable: bool = ...) -> None: ...

class StructType(DataType):
    fields: list[StructField]
    names: list[str]
    def __init__(self, fields: list[StructField] = ...) -> None: ...

def __getattr__(name: str) -> Any: ...
