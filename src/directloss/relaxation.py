"""The exchangeable parts of `UniLoss`.

- `Automatic`: finds the comparisons of a metric in its code.
- `ideal_scores`: the best scores for a target, around which good anchors are drawn.
- `InverseDistance`, `DistanceSpline`: the metric between anchors; subclass `Interpolation` for your own.
"""

from directloss._uniloss.automatic import Automatic
from directloss._uniloss.best import ideal_scores
from directloss._uniloss.interpolation import DistanceSpline, Interpolation, InverseDistance

__all__ = [
    "Automatic",
    "DistanceSpline",
    "Interpolation",
    "InverseDistance",
    "ideal_scores",
]
