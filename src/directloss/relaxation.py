"""The parts of `UniLoss`, for those who want to exchange or to examine one of them.

Automatic                        how a metric is taken apart: found in its code
ideal_scores                     where good anchors are: the best scores that a target allows
InverseDistance, DistanceSpline  the metric between anchors; write an `Interpolation` for another one
interpolation_quality            how well an interpolation knows the metric, as in Table 5 of the paper
"""

from directloss._uniloss.analysis import InterpolationQuality, interpolation_quality
from directloss._uniloss.automatic import Automatic
from directloss._uniloss.best import ideal_scores
from directloss._uniloss.interpolation import DistanceSpline, Interpolation, InverseDistance

__all__ = [
    "Automatic",
    "DistanceSpline",
    "Interpolation",
    "InterpolationQuality",
    "InverseDistance",
    "ideal_scores",
    "interpolation_quality",
]
