"""Which comparisons a metric makes, found by running its own code: f, h and g of UniLoss without any handwork.

A metric is run under a mode that sees every tensor operation (`run`). Values that depend on scores carry a second
value, computed from random *witness* scores (`shadows`): it tells which score, or which expression of scores, an entry
of a tensor is (`images`). Operations that make something discrete out of such values (`decisions`) ask questions "what
is the sign of x - y?", and each question is one of the metric's variables (`questions`, `variables`). A second run can
then answer the questions as it likes: the metric as a function of its binary variables (`trace`).

Liu, Wang, Deng (ECCV 2020), Sec. 3.3, call this refactoring and leave it to the user.
"""

from directloss._uniloss.tracing.explanation import Explanation
from directloss._uniloss.tracing.trace import Trace, record

__all__ = ["Explanation", "Trace", "record"]
