"""Networks: a score for each item, for each class, or for each pixel."""

from directloss.lab.models.hourglass import Hourglass
from directloss.lab.models.mlp import Scorer, TwoWay
from directloss.lab.models.resnet import ResNet20

__all__ = ["Hourglass", "ResNet20", "Scorer", "TwoWay"]
