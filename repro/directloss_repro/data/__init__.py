"""Data sets: generated from seeds, bundled with scikit-learn, or read from the user's files."""

from directloss_repro.data.split import Part, Split, flip_labels, hold_out, thirds

__all__ = ["Part", "Split", "flip_labels", "hold_out", "thirds"]
