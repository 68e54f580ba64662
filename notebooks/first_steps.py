# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # First steps
#
# What the gradient of a metric does to a ranking, in four plots.

# %%
import matplotlib.pyplot as plt
import torch
from sklearn.metrics import PrecisionRecallDisplay

import directloss as dl

_ = torch.manual_seed(0)

# %% [markdown]
# Eight items, three of them relevant. Average precision (AP) is 1 if the relevant ones are at the top.

# %%
scores = torch.tensor([2.1, 1.6, 1.3, 0.9, 0.4, 0.1, -0.5, -1.0])
labels = torch.tensor([0, 1, 0, 0, 1, 0, 0, 1])
dl.metrics.average_precision(scores, labels)

# %% [markdown]
# ## One step
#
# AP depends only on the order: a small change of a score changes nothing, so AP has no useful gradient of its own.
# `dl.direct_loss` has the value 1 - AP, and its gradient says how much AP gains, on average over random noise, if an
# item moves. Each arrow is one step against it.

# %%
ax = dl.plot.step(scores, labels, "ap")

# %% [markdown]
# Relevant items move up, irrelevant ones down, and items move most where a change of rank matters: the last relevant
# item is far below the others and moves little. Cross-entropy moves every item by how wrong its own probability is,
# whatever its rank.

# %%
cross_entropy = torch.nn.BCEWithLogitsLoss()
ax = dl.plot.step(scores, labels, lambda scores, target: cross_entropy(scores, target.float()))

# %% [markdown]
# ## Why there is a gradient
#
# Move the score of one relevant item and look at the loss. Without noise it is a staircase, flat between the steps.
# With noise on the scores, the mean over many draws is smooth. Direct loss follows its slope, without bias.

# %%
ax = dl.plot.landscape(scores, labels, "ap", item=4)

# %% [markdown]
# ## Training
#
# In a training loop, only the loss changes. Here are 2,000 items with 20 features, one in ten relevant.

# %%
features = torch.randn(2000, 20)
relevance = features[:, :3].sum(1) + torch.randn(2000)
relevant = (relevance > relevance.quantile(0.9)).long()

model = torch.nn.Linear(20, 1)
loss_fn = dl.DirectLoss("ap")
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
before = model(features).squeeze(1).detach()
for _ in range(100):
    loss = loss_fn(model(features).squeeze(1), relevant)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
after = model(features).squeeze(1).detach()

# %%
_, ax = plt.subplots()
for name, ranked in {"before": before, "after": after}.items():
    PrecisionRecallDisplay.from_predictions(relevant.numpy(), ranked.numpy(), name=name, ax=ax)
