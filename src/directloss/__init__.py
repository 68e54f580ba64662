"""Train PyTorch networks on the metric they are judged by.

Examples:
    >>> import torch, directloss as dl
    >>> loss_fn = dl.DirectLoss("ap")
    >>> scores = torch.tensor([0.3, 0.1, 0.2], requires_grad=True)
    >>> loss = loss_fn(scores, torch.tensor([0, 1, 0]))
    >>> loss.backward()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from directloss._errors import DirectLossError, DirectLossWarning

if TYPE_CHECKING:
    from pathlib import Path

    from directloss import metrics, plot, relaxation, tasks
    from directloss._uniloss import Anchoring, Refactoring, UniLoss, uniloss
    from directloss.answers import estimate_flips
    from directloss.averaging import AveragedLoss
    from directloss.direct import DirectLoss, direct_loss, expected_metric
    from directloss.full_batch import full_batch_step
    from directloss.memory import ScoreMemory
    from directloss.retrieval import RetrievalLoss
    from directloss.surrogates import HingeLoss, PerceptronLoss, hinge_loss, perceptron_loss
    from directloss.tabular.model import Model
    from directloss.task import Defaults, Task

__version__ = "0.2.0.dev0"

__all__ = [
    "Anchoring",
    "AveragedLoss",
    "Defaults",
    "DirectLoss",
    "DirectLossError",
    "DirectLossWarning",
    "HingeLoss",
    "PerceptronLoss",
    "Refactoring",
    "RetrievalLoss",
    "ScoreMemory",
    "Task",
    "UniLoss",
    "direct_loss",
    "estimate_flips",
    "expected_metric",
    "full_batch_step",
    "hinge_loss",
    "load",
    "metrics",
    "perceptron_loss",
    "plot",
    "relaxation",
    "tasks",
    "uniloss",
]

# Importing torch takes seconds, so these names are imported on first use and `directloss --help` is quick. The block
# above tells type checkers the same.
_NAMES = {
    "_uniloss": ("Anchoring", "Refactoring", "UniLoss", "uniloss"),
    "answers": ("estimate_flips",),
    "averaging": ("AveragedLoss",),
    "direct": ("DirectLoss", "direct_loss", "expected_metric"),
    "full_batch": ("full_batch_step",),
    "memory": ("ScoreMemory",),
    "retrieval": ("RetrievalLoss",),
    "surrogates": ("HingeLoss", "PerceptronLoss", "hinge_loss", "perceptron_loss"),
    "task": ("Defaults", "Task"),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}
_MODULES = ("distributed", "integrations", "kernels", "metrics", "plot", "relaxation", "tasks")

if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return import_module(f"directloss.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module 'directloss' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"directloss.{_HOMES[name]}"), name)
        return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES, *(name for name in globals() if name.startswith("__"))})


def load(path: str | Path) -> Model:
    """Read a model written by ``directloss fit``. No code in the file is executed.

    Needs the extra ``fit``. The model has `predict`, `predict_proba` and `decision_function`, which take a
    `pandas.DataFrame` with the training columns.
    """
    try:
        from directloss.tabular.model import load_model
    except ModuleNotFoundError as error:
        raise ImportError(f"directloss.load needs {error.name}: pip install '.[fit]' in a checkout") from error
    return load_model(path)
