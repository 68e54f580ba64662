"""UniLoss: any metric as a loss. Liu, Wang, Deng (ECCV 2020), and what it left open.

scores -> comparisons -> binaries -> metric        each step a file:

comparisons     f, what is compared                refactoring     the user's own f and g
byhand          the paper's three metrics          automatic       f and g found in the metric's code
lists           pairs, for compiled loops          compiled        the usual anchors, in compiled loops
configurations  distances between binaries         anchors         configurations with known values
interpolation   the metric between anchors         loss            all of it as a loss
consistency     binaries that no scores have       spacing         how far anchors lie from each other
names           metrics by name
"""

from directloss._uniloss.anchors import Anchoring
from directloss._uniloss.loss import UniLoss, uniloss
from directloss._uniloss.refactoring import Refactoring

__all__ = ["Anchoring", "Refactoring", "UniLoss", "uniloss"]
