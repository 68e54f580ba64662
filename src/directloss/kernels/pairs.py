"""Which of many rows of scores order a pair otherwise than the current scores do, compiled: the inner loop of UniLoss.

Indices are unsigned, because numba vectorises an inner loop only if no index can be negative.
"""

from __future__ import annotations

from directloss.kernels.compiled import kernel


@kernel
def differing(columns, left, right, here, start, out):
    """Fill ``out[i, k]`` with 1 where row k orders pair ``start + i`` otherwise than ``here``, and with 0 elsewhere.

    Shapes: columns (m, k), the transposed rows; left, right and here (pairs,), unsigned and boolean; out (some, k).
    """
    for i in range(len(out)):
        a, b, now = columns[left[start + i]], columns[right[start + i]], here[start + i]
        row = out[i]
        for k in range(columns.shape[1]):
            row[k] = (a[k] > b[k]) != now
