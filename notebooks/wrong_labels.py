# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Wrong labels
#
# A fifth of the training labels is wrong. Which loss still ranks well? The data are scikit-learn's images of digits;
# the images of one digit should rank first.

# %%
import matplotlib.pyplot as plt
import torch
from sklearn.calibration import CalibrationDisplay
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import PrecisionRecallDisplay
from sklearn.model_selection import train_test_split

import directloss as dl

torch.manual_seed(0)
DIGIT = 8
images, digits = load_digits(return_X_y=True)
x = torch.tensor(images / 16, dtype=torch.float32)
y = torch.tensor(digits == DIGIT).long()
x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.5, stratify=y, random_state=0)

# %% [markdown]
# Each training label is flipped with probability 0.2. Nine in ten images are of other digits, so most of the labels
# that say "relevant" are now wrong.

# %%
flipped = torch.rand(len(y_train)) < 0.2
y_wrong = torch.where(flipped, 1 - y_train, y_train)
print(f"of {y_wrong.sum()} images called relevant, {(y_wrong & y_train).sum()} are")

# %% [markdown]
# Both losses train the same linear model for the same number of steps.

# %%
STEPS = 300
cross_entropy = torch.nn.BCEWithLogitsLoss()


def fit(loss, labels):
    """Train and return the scores of the test images."""
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss(model(x_train).squeeze(1), labels).backward()
        optimizer.step()
    return model(x_test).squeeze(1).detach()


def likelihood(scores, target):
    """Cross-entropy for integer labels."""
    return cross_entropy(scores, target.float())


# %%
found = {}
for name, labels in {"clean": y_train, "wrong": y_wrong}.items():
    found[name] = {
        "cross-entropy": fit(likelihood, labels),
        "direct loss": fit(dl.DirectLoss("ap"), labels),
    }
    for loss, scores in found[name].items():
        print(f"{name} labels, {loss}: test AP {dl.metrics.average_precision(scores, y_test):.3f}")

# %% [markdown]
# Precision and recall on the test images, whose labels are correct:

# %%
_, ax = plt.subplots()
for loss, scores in found["wrong"].items():
    PrecisionRecallDisplay.from_predictions(y_test.numpy(), scores.numpy(), name=loss, ax=ax)

# %% [markdown]
# ## Probabilities
#
# Scores of a ranking loss are not probabilities. If you need probabilities, calibrate: fit a slope and a bias on rows
# with correct labels (here the first half of the test images; the plot shows the second).

# %%
scores = found["wrong"]["direct loss"]
half = len(scores) // 2
platt = LogisticRegression().fit(scores[:half, None].numpy(), y_test[:half].numpy())
calibrated = platt.predict_proba(scores[half:, None].numpy())[:, 1]
_, ax = plt.subplots()
for name, shares in {"raw": torch.sigmoid(scores[half:]).numpy(), "calibrated": calibrated}.items():
    CalibrationDisplay.from_predictions(y_test[half:].numpy(), shares, n_bins=5, name=name, ax=ax)

# %% [markdown]
# One digit and one draw of wrong labels are only an illustration. [Other losses](../evidence-peers.md) compares losses
# on many data sets and seeds, including clean labels, where cross-entropy is hard to beat.
