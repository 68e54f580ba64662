"""The exchangeable parts of `UniLoss`.

- `Automatic`: finds the comparisons of a metric by probing it.
- `ideal_scores`: the best scores for a target, around which good anchors are drawn.
- `InverseDistance`, `DistanceSpline`: the metric between anchors; subclass `Interpolation` for your own.
"""

from directloss._uniloss.interpolation import DistanceSpline, Interpolation, InverseDistance
from directloss._uniloss.refactoring import Automatic
from directloss._uniloss.target import ideal_scores

__all__ = [
    "Automatic",
    "DistanceSpline",
    "Interpolation",
    "InverseDistance",
    "ideal_scores",
]
