"""Every operation that makes something discrete out of scores, as questions and a choice that follows from answers."""

from directloss._uniloss.tracing import elementwise, lists
from directloss._uniloss.tracing.handlers import HANDLERS

__all__ = ["HANDLERS", "elementwise", "lists"]
