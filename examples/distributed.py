"""Average precision over the batches of all processes: the same numbers, up to rounding, for any number of them.

python examples/distributed.py
torchrun --standalone --nproc-per-node 2 examples/distributed.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import directloss as dl

together = dist.is_torchelastic_launched()
if together:
    dist.init_process_group("gloo")  # "nccl" on GPUs
rank, size = (dist.get_rank(), dist.get_world_size()) if together else (0, 1)

torch.manual_seed(0)
x = torch.randn(2000, 8)
y = x[:, 0] + x[:, 1] * x[:, 2] > 1.5
network = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
model = DistributedDataParallel(network) if together else network
loss_fn = dl.DirectLoss("ap", gather=True)
optimizer = torch.optim.Adam(model.parameters(), 0.01)

for step in range(1, 61):
    batch = torch.randint(len(x), (300,))  # the same on all processes: they share the seed
    mine = batch.tensor_split(size)[rank]
    optimizer.zero_grad()
    loss = loss_fn(model(x[mine]).squeeze(1), y[mine])
    loss.backward()
    optimizer.step()
    if rank == 0 and step % 20 == 0:
        print(f"step {step}, batch of {len(batch)} from {size} processes, 1 - AP = {loss.item():.3f}")

if together:
    dist.destroy_process_group()
