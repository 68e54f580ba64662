"""LightGBM with 20 % wrong labels: 200 rounds on cross-entropy, or 100 of them on average precision.

python examples/boosting_ap.py
"""

import lightgbm
import numpy as np

from directloss.integrations.boosting import Evaluation, train

PARAMS = {"num_leaves": 15, "learning_rate": 0.1, "num_threads": 1, "seed": 0}


def rows(count: int, seed: int, wrong: float) -> tuple[np.ndarray, np.ndarray]:
    """Draw features and labels, about 11 % positive; a share `wrong` of the labels is flipped."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(count, 10))
    y = x[:, 0] + x[:, 1] * x[:, 2] + 0.5 * draw.normal(size=count) > 1.6
    return x, (y ^ (draw.random(count) < wrong)).astype(int)


(x, y), (held, wanted), (new, truth) = rows(4000, 0, 0.2), rows(2000, 1, 0.2), rows(10_000, 2, 0.0)
data = lightgbm.Dataset(x, y, free_raw_data=False)
validation = data.create_valid(held, wanted)

for name, first, then in (("cross-entropy", 200, 0), ("cross-entropy, then AP", 100, 100)):
    made = train(PARAMS, data, "ap", validation=validation, first=first, then=then)
    value = Evaluation("ap")(truth, made.booster.predict(new, raw_score=True))[1]
    print(f"{name:23} {made.first} + {made.rounds - made.first} rounds, AP on clean test rows: {value:.3f}")
