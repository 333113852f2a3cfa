# What this project uses of pyspark: see stubPath in pyproject.toml.
from pyspark.taskcontext import TaskContext as TaskContext

__version__: str
