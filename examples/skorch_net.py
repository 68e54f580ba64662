"""skorch: the loss is a criterion like any other; metrics that couple all items want the whole data in one batch."""

import numpy as np
import torch
from sklearn.datasets import make_classification
from sklearn.model_selection import cross_val_score
from skorch import NeuralNetClassifier
from torch import nn

import directloss as dl


class Scorer(nn.Sequential):
    """One score for each row."""

    def __init__(self, columns: int = 20) -> None:
        super().__init__(nn.Linear(columns, 16), nn.ReLU(), nn.Linear(16, 1), nn.Flatten(0))


class Net(NeuralNetClassifier):
    """skorch takes two classes for two outputs; here one score decides, positive above 0."""

    def decision_function(self, X: object) -> np.ndarray:
        """The scores, which scikit-learn's ranking metrics ask for."""
        return self.forward(X).numpy(force=True)


def main() -> None:
    """Cross-validate a network that is trained on AP."""
    torch.manual_seed(0)
    X, y = make_classification(1000, weights=[0.9], random_state=0)
    options = {"optimizer": torch.optim.Adam, "lr": 0.01, "batch_size": -1, "max_epochs": 40, "train_split": None}
    net = Net(Scorer, criterion=dl.DirectLoss, criterion__task="ap", verbose=0, **options)
    print(f"AP {cross_val_score(net, X.astype('float32'), y, scoring='average_precision', cv=2).mean():.3f}")


if __name__ == "__main__":
    main()
