"""Which comparisons a metric makes, found by running its own code: f, h and g of UniLoss without manual work.

A metric runs under a mode that sees every tensor operation (`run`). Values that depend on scores carry a second value,
their shadow, computed from random scores (`witness`): it tells which score, or which expression of scores, an entry of
a tensor is (`images`). Operations that make something discrete out of such values (`elementwise`, `listwise`) ask "what
is the sign of x - y?", and each question is one of the metric's variables (`variables`). A second run can answer the
questions freely (`decisions`), which makes the metric a function of its binary variables (`trace`).

Liu, Wang, Deng (ECCV 2020), Sec. 3.3, call this refactoring and leave it to the user.
"""

from directloss._uniloss.tracing import elementwise, listwise  # fill the table of handlers
from directloss._uniloss.tracing.explanation import Explanation
from directloss._uniloss.tracing.trace import Trace, record

__all__ = ["Explanation", "Trace", "elementwise", "listwise", "record"]
