"""Data sets: drawn from seeds, bundled with scikit-learn, or read from files that the user has."""

from directloss_repro.data.split import Part, Split, flip_labels, hold_out, thirds

__all__ = ["Part", "Split", "flip_labels", "hold_out", "thirds"]
