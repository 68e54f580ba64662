"""skorch: the loss is an ordinary criterion; AP couples all items, so all rows form one batch.

python examples/skorch_net.py
"""

import torch
from sklearn.datasets import make_classification
from sklearn.model_selection import cross_val_score
from skorch import NeuralNetBinaryClassifier
from torch import nn

import directloss as dl


def two_classes(scores: torch.Tensor) -> torch.Tensor:
    """Scores as shares of two classes: a score above 0 means the second, which skorch cannot know."""
    return torch.stack([torch.zeros_like(scores), scores], 1).softmax(1)


class Scorer(nn.Sequential):
    """One score per row."""

    def __init__(self, columns: int = 20) -> None:
        super().__init__(nn.Linear(columns, 16), nn.ReLU(), nn.Linear(16, 1), nn.Flatten(0))


def main() -> None:
    """Cross-validate a network trained on AP."""
    torch.manual_seed(0)
    X, y = make_classification(1000, weights=[0.9], random_state=0)
    options = {"optimizer": torch.optim.Adam, "lr": 0.01, "max_epochs": 40, "train_split": None, "verbose": 0}
    loss = {"criterion": dl.DirectLoss, "criterion__task": "ap", "batch_size": -1}
    net = NeuralNetBinaryClassifier(Scorer, **loss, predict_nonlinearity=two_classes, **options)
    rows = X.astype("float32")
    print(f"AP {cross_val_score(net, rows, y, scoring='average_precision', cv=2).mean():.3f}")
    print(f"Labels: {net.fit(rows, y).predict(rows)[:5]}")


if __name__ == "__main__":
    main()
