"""Learn the cost of terrain from cheapest paths alone: direct loss against structured hinge and cross-entropy.

Every cell of a map has five features, and its unknown cost depends on them. Training data are maps with their cheapest
paths; in a second run, 30 % of the maps have the path of another map. Methods are judged by their paths through unseen
maps. The margin of the hinge is the best of several tried on other maps; direct loss is the paper's negative update.

python examples/shortest_path.py
"""

import torch
from torch import Tensor, nn

import directloss as dl

SIZE, STEPS, BATCH = 8, 150, 32
task = dl.tasks.GridPath(SIZE, SIZE, connectivity=8)


def draw(maps: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Draw features (maps, 5, h, w), true costs (maps, h, w) and the cheapest paths."""
    x = torch.randn(maps, 5, SIZE, SIZE, generator=generator)
    cost = 0.2 + (x[:, 0] + 0.8 * x[:, 1] * x[:, 2] + 0.5 * x[:, 3].abs()).exp().clamp(max=20)
    return x, cost, task.predict(-cost)


def relative(z: Tensor) -> Tensor:
    """Turn outputs into scores: minus positive costs with mean 1, because only ratios of costs matter."""
    cost = nn.functional.softplus(z)
    return -cost / cost.mean((1, 2), keepdim=True)


def main() -> None:
    """Train each method on clean and on wrong paths, and evaluate its paths on 500 unseen maps."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(7)
    (maps, _, clean), (unseen, costs, best) = draw(400, generator), draw(500, generator)
    wrong = torch.cat([clean[:120].roll(1, 0), clean[120:]])
    methods = {  # for cross-entropy (is this cell on the path?) the scores are log probabilities
        "cross-entropy": (lambda s, path: nn.functional.binary_cross_entropy(s.exp(), path), nn.functional.logsigmoid),
        "hinge": (dl.HingeLoss(task, epsilon=2.5), relative),
        "direct": (dl.DirectLoss(task, noise=0, sign=-1, epsilon=30.0), relative),
    }
    print(f"{'paths':10} {'method':14} {'cells off the path':>18} {'excess cost':>12}")
    for word, paths in (("clean", clean), ("30 % wrong", wrong)):
        for name, (loss_fn, scores_of) in methods.items():
            torch.manual_seed(0)
            net = nn.Sequential(nn.Conv2d(5, 32, 1), nn.ReLU(), nn.Conv2d(32, 1, 1), nn.Flatten(1, 2))
            optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
            for _ in range(STEPS):
                chosen = torch.randint(len(maps), (BATCH,))
                optimiser.zero_grad()
                loss_fn(scores_of(net(maps[chosen])), paths[chosen]).backward()
                optimiser.step()
            found = task.predict(scores_of(net(unseen)))
            excess = (costs * found).sum((1, 2)) / (costs * best).sum((1, 2)) - 1
            off = 1 - (found * best).sum((1, 2)) / found.sum((1, 2))
            print(f"{word:10} {name:14} {off.mean():>18.1%} {excess.mean():>12.1%}")


if __name__ == "__main__":
    main()
