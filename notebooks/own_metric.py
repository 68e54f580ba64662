# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Your own metric
#
# `dl.DirectLoss` takes any metric that you wrote. The metric need not be differentiable, and its code does not change.
#
# **When not to use it**: F1, IoU, AP, NDCG and the rest of `dl.tasks.names()` are faster by name, and a function of the
# confusion matrix is faster as a `dl.tasks.CountMetric`.

# %%
import torch

import directloss as dl

_ = torch.manual_seed(0)

# %% [markdown]
# ## The metric
#
# A clinic refers patients whose score is above 0. Missing an ill patient costs five times as much as a needless visit.
# The metric is the share of the worst possible cost that is saved.


# %%
def saved_cost(scores, target):
    """1 if every decision is right, 0 if every decision is wrong."""
    refer, ill = scores > 0, target == 1
    cost = 5 * (ill & ~refer).sum() + (~ill & refer).sum()
    return 1 - cost / (5 * ill.sum() + (~ill).sum())


# %% [markdown]
# The value of the loss is exactly 1 - metric. The gradient moves some of the items in each step and looks how the
# metric changes: a step raises the scores of the ill and lowers those of the healthy.

# %%
loss_fn = dl.DirectLoss(saved_cost)
scores, target = torch.randn(12), (torch.arange(12) % 3 == 0).long()
print(f"loss {loss_fn(scores, target):.4f}, 1 - metric {1 - saved_cost(scores, target):.4f}")
ax = dl.plot.step(scores, target, loss_fn)

# %% [markdown]
# ## Training
#
# Illness depends on the features only in part. Train the same model with cross-entropy and on the metric itself. For
# any function the loss adds cross-entropy's gradient with weight 1, which pulls decisions back to its own threshold;
# a tenth is enough here.

# %%
weights = torch.randn(10)


def patients(n):
    """Return features and who is ill."""
    features = torch.randn(n, 10)
    return features, (torch.rand(n) < torch.sigmoid(features @ weights - 2)).long()


train, test = patients(400), patients(5000)
cross_entropy = torch.nn.BCEWithLogitsLoss()


def fit(loss):
    """Train on all training rows; return the scores of the training and the test rows."""
    torch.manual_seed(1)
    model = torch.nn.Linear(10, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(150):
        optimizer.zero_grad()
        loss(model(train[0]).squeeze(1), train[1]).backward()
        optimizer.step()
    with torch.no_grad():
        return model(train[0]).squeeze(1), model(test[0]).squeeze(1)


known, new = fit(lambda scores, ill: cross_entropy(scores, ill.float()))
print(f"cross-entropy, threshold 0:     saved cost on test rows {saved_cost(new, test[1]):.3f}")
best = max(torch.linspace(-4, 4, 81), key=lambda cut: saved_cost(known - cut, train[1]))
print(f"cross-entropy, threshold {best:.1f}:  saved cost on test rows {saved_cost(new - best, test[1]):.3f}")
gentle = dl.DirectLoss(saved_cost, likelihood=0.1)
print(f"the metric, threshold 0:        saved cost on test rows {saved_cost(fit(gentle)[1], test[1]):.3f}")

# %% [markdown]
# Trained on the metric, the model has learned by itself that it should refer in case of doubt. Cross-entropy needs a
# second step for this, the choice of a threshold, and is then as good. Compare with that before you choose.
#
# [`dl.UniLoss`](../uniloss.md) also takes any metric. It interpolates between values of the metric and gives every
# score a gradient in each step.
