from typing import Any

class DataType:
    def simpleString(self) -> str: ...

class StructField:
    name: str
    dataType: DataType
    nullable: bool

class StructType(DataType):
    fields: list[StructField]
    names: list[str]

def __getattr__(name: str) -> Any: ...
