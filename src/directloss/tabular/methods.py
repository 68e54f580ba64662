"""The networks and the models they are compared with, each with some settings; the validation rows choose one of them.

All get the same standardised rows. The network trained on the metric is `DirectLossClassifier`. The one trained with
cross-entropy is what a practitioner would use instead, scikit-learn's `MLPClassifier`, with the same layers, batches
and epochs. For both, the best epoch on the validation rows is kept.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.stats import loguniform
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import ParameterSampler
from sklearn.neural_network import MLPClassifier
from torch import nn

from directloss._checks import DirectLossWarning
from directloss.integrations.sklearn import DirectLossClassifier
from directloss.tabular.columns import Codes, Floats
from directloss.tabular.measures import Measure

EPOCHS, LARGE, BATCH, STEPS, FEWEST = 200, 20_000, 2_048, 1_000, 2
"""More than ``LARGE`` training rows are trained in batches of ``BATCH``, for the epochs of about ``STEPS`` steps."""
LOOKS = 25
"""How often the validation rows are looked at during a training."""
BLOCK = 2**16
"""Rows that are scored at once."""

X = npt.NDArray[np.float32]
Setting = Mapping[str, Any]


@dataclass(frozen=True)
class Data:
    """Encoded training and validation rows with their labels."""

    train: tuple[X, Codes]
    held: tuple[X, Codes]
    measure: Measure
    seed: int
    epochs: int | None = None

    @property
    def batch(self) -> int | None:
        """Rows per batch; None for all at once."""
        return BATCH if len(self.train[1]) > LARGE else None

    @property
    def passes(self) -> int:
        """Epochs of a training."""
        usual = max(FEWEST, STEPS // (len(self.train[1]) // self.batch)) if self.batch else EPOCHS
        return self.epochs or usual

    def judge(self, trained: Any) -> tuple[float, float]:
        """The validation metric at the best threshold, and that threshold."""
        scores, target = torch.from_numpy(trained.decision_function(self.held[0])), torch.from_numpy(self.held[1])
        cut = self.measure.cut(scores, target)
        return float(self.measure.value(scores - cut, target)), cut


@dataclass(frozen=True)
class Network:
    """Weights of a network with ReLU between its layers, which `model` can store."""

    layers: Sequence[tuple[npt.NDArray[Any], npt.NDArray[Any]]]
    """Weight ``(in, out)`` and bias ``(out,)`` of each layer."""

    def decision_function(self, x: X) -> Floats:
        """Scores in float64, so that they do not depend on which rows are scored together."""
        scores = []
        for start in range(0, len(x), BLOCK):
            values = x[start : start + BLOCK].astype(np.float64)
            for place, (weight, bias) in enumerate(self.layers):
                values = (np.maximum(values, 0) if place else values) @ weight.astype(np.float64) + bias
            scores.append(values.squeeze(1))
        return np.concatenate(scores)

    def above(self, cut: float) -> Network:
        """The network whose scores are positive above a threshold."""
        *layers, (weight, bias) = self.layers
        return Network([*layers, (weight, bias - np.float64(cut))])


def _network(layers: Iterable[tuple[Any, Any]]) -> Network:
    """A copy of the weights in float32."""
    return Network([(np.array(weight, np.float32), np.array(bias, np.float32)) for weight, bias in layers])


def train_direct(data: Data, setting: Setting) -> Network:
    """Train a network on the metric."""
    estimator = DirectLossClassifier(
        data.measure.task, **setting, epochs=data.passes, batch_size=data.batch, flips=data.measure.flips,
        random_state=data.seed,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DirectLossWarning)  # a batch without a rare class is normal
        estimator.fit(*data.train, eval_set=data.held)
    linear = [layer for layer in estimator.network_.modules() if isinstance(layer, nn.Linear)]
    return _network((layer.weight.detach().numpy().T, layer.bias.detach().numpy()) for layer in linear)


def train_with_cross_entropy(data: Data, setting: Setting) -> Network:
    """Train a network of the same layers with cross-entropy; the best epoch on the validation rows is kept."""
    network = MLPClassifier(**setting, batch_size=data.batch or len(data.train[1]), random_state=data.seed)
    found = []
    every = max(1, data.passes // LOOKS)
    for epoch in range(1, data.passes + 1):
        network.partial_fit(*data.train, classes=[0, 1])
        if epoch % every == 0 or epoch == data.passes:
            own = _network(zip(network.coefs_, network.intercepts_, strict=True))
            found.append((data.judge(own)[0], own))
    return max(found, key=lambda one: one[0])[1]


def train_logistic(data: Data, setting: Setting) -> Network:
    """Logistic regression, which is a network without hidden layers."""
    fitted = LogisticRegression(max_iter=1000, **setting).fit(*data.train)
    return _network([(fitted.coef_.T, fitted.intercept_)])


def train_boosting(data: Data, setting: Setting) -> HistGradientBoostingClassifier:
    """Gradient boosting."""
    return HistGradientBoostingClassifier(random_state=data.seed, **setting).fit(*data.train)


@dataclass(frozen=True)
class Method:
    """A way to train, and the settings to try."""

    name: str
    title: str
    train: Callable[[Data, Setting], Any]
    """Returns something with a `decision_function`: a score per row, higher for the positive label."""
    settings: list[Setting]


def methods(measure: Measure, trials: int, seed: int) -> list[Method]:
    """The network trained on the metric, the one trained with cross-entropy, and the models to compare them with."""

    def settings(hidden: str, rate: str, decay: str, most: float) -> list[Setting]:
        """One that is fixed, and others that are drawn at random; all are parameters of the estimator."""
        space = {hidden: [[], [64], [64, 64]], rate: loguniform(3e-3, 0.1), decay: loguniform(1e-4, most)}
        found: list[Setting] = [{hidden: [64], rate: 0.01, decay: 0.01}]
        for own in ParameterSampler(space, trials - 1, random_state=seed):
            found.append({hidden: own[hidden]} | {key: float(f"{own[key]:.3g}") for key in (rate, decay)})
        return found

    direct = settings("model", "learning_rate", "weight_decay", 1.0)
    cross_entropy = settings("hidden_layer_sizes", "learning_rate_init", "alpha", 10.0)
    trees: list[Setting] = [{}, {"learning_rate": 0.05, "max_iter": 200}]
    trees += [{"max_leaf_nodes": 15, "l2_regularization": 1.0}]
    return [
        Method(f"direct-{measure.name}", f"network trained on {measure.title}", train_direct, direct),
        Method("x-ent", "network trained with cross-entropy", train_with_cross_entropy, cross_entropy),
        Method("logistic", "LogisticRegression", train_logistic, [{"C": rate} for rate in (1.0, 0.1, 0.01, 10.0)]),
        Method("hist", "HistGradientBoosting", train_boosting, trees),
    ]


def described(setting: Setting) -> str:
    """``learning_rate=0.05, max_iter=200``."""
    return ", ".join(f"{key}={value}" for key, value in setting.items()) or "default settings"
