"""The experiments of the papers, one command each.

An experiment declares data, model, methods, search space and evaluation (`experiments`). A campaign chooses settings on
validation data and then trains on fresh seeds (`campaign`), with one training loop (`training`). Every finished run is
a line in a file (`records`), and reports are drawn from these lines only (`reports`).
"""

PAPER_METHODS = ("pos-ap", "neg-ap", "pos-01", "neg-01", "hinge-ap", "hinge-01", "per-ap", "per-01", "x-ent")
"""The nine methods of the papers' figures, in the order of all tables."""
