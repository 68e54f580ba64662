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
# `dl.UniLoss` turns a metric that you wrote into a loss. The metric need not be differentiable, and its code does not
# change.
#
# **When not to use it**: F1, IoU, AP, NDCG and the rest of `dl.tasks.names()` have exact inference in `dl.DirectLoss`.

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
# `explain` shows what the library finds in this code: one decision per score.

# %%
loss_fn = dl.UniLoss(saved_cost, generator=torch.Generator().manual_seed(0))
scores, target = torch.randn(12), (torch.arange(12) % 3 == 0).long()
print(loss_fn.explain(scores, target))

# %% [markdown]
# The value of the loss is exactly 1 - metric. A step raises the scores of the ill and lowers those of the healthy.

# %%
print(f"loss {loss_fn(scores, target):.4f}, 1 - metric {1 - saved_cost(scores, target):.4f}")
ax = dl.plot.step(scores, target, loss_fn)

# %% [markdown]
# ## Training
#
# Illness depends on the features only in part. Train with cross-entropy first, then on the metric itself.

# %%
weights = torch.randn(10)


def patients(n):
    """Return features and who is ill."""
    features = torch.randn(n, 10)
    return features, (torch.rand(n) < torch.sigmoid(features @ weights - 2)).long()


train, test = patients(400), patients(5000)
cross_entropy = torch.nn.BCEWithLogitsLoss()


def fit(model, loss, steps, lr):
    """Train on all rows and return the metric on the test rows."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    features, ill = train
    for _ in range(steps):
        optimizer.zero_grad()
        loss(model(features).squeeze(1), ill).backward()
        optimizer.step()
    with torch.no_grad():
        return saved_cost(model(test[0]).squeeze(1), test[1]).item()


model = torch.nn.Linear(10, 1)
likelihood = fit(model, lambda scores, ill: cross_entropy(scores, ill.float()), steps=200, lr=0.05)
metric = fit(model, loss_fn, steps=60, lr=0.02)
print(f"saved cost on test rows: cross-entropy {likelihood:.3f}, then UniLoss {metric:.3f}")

# %% [markdown]
# Here training on the metric is as good as cross-entropy, not better. That is what we find
# [elsewhere](../results-uniloss.md), too: compare on validation rows before you choose.
