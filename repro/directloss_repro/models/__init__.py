"""Networks: one score per item, per class, or per pixel."""

from directloss_repro.models.hourglass import Hourglass
from directloss_repro.models.mlp import Scorer
from directloss_repro.models.resnet import ResNet20

__all__ = ["Hourglass", "ResNet20", "Scorer"]
