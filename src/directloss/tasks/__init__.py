"""Tasks: one file per family of inference and loss-augmented inference.

`names()` lists what can be asked for by name, `get(name)` makes the object that a name stands for.
"""

from directloss.task import Task, get, names, register, summaries

__all__ = ["Task", "get", "names", "register", "summaries"]
