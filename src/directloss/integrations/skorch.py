"""skorch: what its binary classifier needs besides the loss."""

from __future__ import annotations

import torch
from torch import Tensor


def two_classes(scores: Tensor) -> Tensor:
    """Scores ``(n,)`` as shares of two classes ``(n, 2)``, for ``predict_nonlinearity``; above 0 is the second class.

    The shares are the sigmoid of the scores. They are probabilities only if the loss made the scores log-odds.

    Examples:
        >>> two_classes(torch.tensor([0.0, 3.0]))
        tensor([[0.5000, 0.5000],
                [0.0474, 0.9526]])
    """
    shares = torch.sigmoid(scores)
    return torch.stack([1 - shares, shares], 1)
