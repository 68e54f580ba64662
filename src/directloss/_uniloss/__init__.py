"""UniLoss: any metric as a loss. Liu, Wang, Deng (ECCV 2020), and what it left open.

scores -> comparisons -> binaries -> metric        one idea per file:

comparisons     f, what is compared                probing         finds what a metric compares, by calling it
refactoring     a metric with its comparisons      metric          calls of the user's metric
anchors         scores whose metric is known       interpolation   the metric between anchors
target          what the target says               loss            all of it as a loss
"""

from directloss._uniloss.anchors import Anchoring
from directloss._uniloss.loss import UniLoss, uniloss
from directloss._uniloss.refactoring import Refactoring

__all__ = ["Anchoring", "Refactoring", "UniLoss", "uniloss"]
