"""UniLoss: any metric as a loss. Liu, Wang, Deng (ECCV 2020), and what it left open.

scores -> comparisons -> binaries -> metric        one file per step:

comparisons     f, what is compared                refactoring     f and g written by the user
byhand          the paper's three metrics          automatic       f and g found in the metric's code
lists           pairs for compiled loops           compiled        the default anchors in compiled loops
configurations  distances between binaries         anchors         configurations with known values
interpolation   the metric between anchors         loss            all of it as a loss
consistency     binaries that no scores have       spacing         distances among anchors
names           metrics by name                    best            the best scores for a target
stateful        metric objects as functions        tracing         the comparisons of a metric's code
"""

from directloss._uniloss.anchors import Anchoring
from directloss._uniloss.loss import UniLoss, uniloss
from directloss._uniloss.refactoring import Refactoring

__all__ = ["Anchoring", "Refactoring", "UniLoss", "uniloss"]
