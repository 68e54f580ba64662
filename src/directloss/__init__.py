"""Train PyTorch networks on the metric they are judged by.

Examples:
    >>> import torch, directloss as dl
    >>> loss_fn = dl.DirectLoss("ap")
    >>> scores = torch.tensor([0.3, 0.1, 0.2], requires_grad=True)
    >>> loss = loss_fn(scores, torch.tensor([0, 1, 0]))
    >>> loss.backward()
"""

from directloss import metrics, relaxation, tasks
from directloss._checks import DirectLossError, DirectLossWarning
from directloss._uniloss import Anchoring, Refactoring, UniLoss, uniloss
from directloss.direct import DirectLoss, direct_loss
from directloss.full_batch import full_batch_step
from directloss.memory import ScoreMemory
from directloss.surrogates import HingeLoss, PerceptronLoss, hinge_loss, perceptron_loss
from directloss.task import Task

__version__ = "0.1.0"

__all__ = [
    "Anchoring",
    "DirectLoss",
    "DirectLossError",
    "DirectLossWarning",
    "HingeLoss",
    "PerceptronLoss",
    "Refactoring",
    "ScoreMemory",
    "Task",
    "UniLoss",
    "direct_loss",
    "full_batch_step",
    "hinge_loss",
    "metrics",
    "perceptron_loss",
    "relaxation",
    "tasks",
    "uniloss",
]
