"""Networks: a score for each item, for each class, or for each pixel."""

from directloss_repro.models.hourglass import Hourglass
from directloss_repro.models.mlp import Scorer
from directloss_repro.models.resnet import ResNet20

__all__ = ["Hourglass", "ResNet20", "Scorer"]
