"""The defaults once more, on data sets that were not used to choose them.

    python -m benchmarks.unseen --data-root DATA [--seeds 5] [--out results/unseen] [--workers 2]

As `benchmarks.defaults`, with the same options: six small tables of KEEL, a digit, and two classes of images.
"""

from __future__ import annotations

from benchmarks.defaults import UNSEEN, command

JUDGED = {
    "ap": UNSEEN,
    "ndcg@10": ("digits, 3", "vehicle0"),
    "precision@20": ("digits, 3", "vehicle0"),
    "f1": ("digits, 3", "vehicle0", "car-vgood", "MNIST, 3"),
}

if __name__ == "__main__":
    command(__doc__, JUDGED, "unseen")
