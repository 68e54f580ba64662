"""``voc-detection``: objects in photographs, with the AP of minibatches as loss. ICML 2016, Sec. 4.3 and Table 2.

The paper: PASCAL VOC2012, trained on "train" and judged on "val"; about 2,000 boxes for each image by selective search
in fast mode; the rest as in R-CNN, without box regression; AlexNet with one output, started from ImageNet's weights,
one network for each of the 20 classes; minibatches of 512 boxes (2,048 are said to be better: ``--set
batch_size=2048``); learning rate 0.1 (hinge-AP: 1), weight decay 1e-7, epsilon 0.1; and the same with 20 % noise.

What the paper leaves open, and what we chose:

- Samples as in R-CNN: boxes that overlap an object of the class by half or more are positive, the objects themselves
  included; three negatives for each positive, drawn from the seed; boxes on difficult objects train nothing. R-CNN's
  hard negatives belong to its SVMs, not to fine-tuning: none here, but ``--set hard_rounds=1`` adds a round with them.
- Noise is the exact share of flipped labels in that sample. Objects in test images are as they are.
- 1,000 steps of plain SGD; neither number nor momentum is stated. Cross-entropy has the learning rate of pos-AP.
- AP is the area under the curve, VOC's rule from 2010 on; that of the 11-point rule is recorded beside it.
- Seeds differ in samples, flipped labels, order of batches and first weights of the last layers. The images are the
  same, so that intervals say how much training varies, not how much photographs do.
- ``small`` is for the devkit that ``directloss data make-voc`` writes, on two cores: crops of 99 x 99, frozen
  convolutions with stored features, a head with one hidden layer, Adam, 300 steps at most. Settings and the number of
  steps are chosen by the AP of boxes, noisy labels and all, in a third of the training images that is held out.
"""

from __future__ import annotations

from directloss_repro.config import Grid
from directloss_repro.data.voc import OBJECTS
from directloss_repro.data.voc.making import DIGITS
from directloss_repro.experiments.base import Experiment
from directloss_repro.experiments.photos import make_alexnet, make_model, start_from_weights
from directloss_repro.experiments.regions import RegionConfig, data, draw, harder, judge, look, ready

_DECAY = (1e-7,)

PAPER = RegionConfig(
    methods=("x-ent", "hinge-ap", "pos-ap"),
    noise=(0.0, 0.2),
    classes=OBJECTS,
    select_on="val",
    direct=Grid((0.1,), _DECAY, (0.1,)),
    hinge=Grid((1.0,), _DECAY, (1.0,)),
    plain=Grid((0.1,), _DECAY),
    iterations=1_000,
    evaluate_every=500,
    batch_size=512,
    chunk=64,
    optimizer="sgd",
    momentum=0.0,
    seeds=1,
)

_RATES = (0.0001, 0.0003, 0.001)

SMALL = PAPER.but(
    dataset="make-voc",
    classes=DIGITS[:4],
    layers="head",
    size=99,
    context=7,
    hidden=(64,),
    chunk=0,
    search_width=0,
    search_most=800,
    optimizer="adam",
    direct=Grid(_RATES, (0.0, 0.01), (1.0, 10.0, "auto")),
    hinge=Grid(_RATES, (0.0, 0.01), (1.0, 10.0, 100.0)),
    plain=Grid(_RATES, (0.0, 0.0003, 0.001, 0.003, 0.01, 0.03)),
    iterations=300,
    evaluate_every=10,
    early=True,
    seeds=5,
)

QUICK = SMALL.but(
    direct=Grid((0.001,), (0.0,), ("auto",)),
    hinge=Grid((0.001,), (0.0,), (1.0,)),
    plain=Grid((0.001,), (0.0,)),
    iterations=100,
    seeds=2,
)

VOC_DETECTION = Experiment(
    name="voc-detection",
    summary="Objects by selective search and AlexNet, AP of minibatches as loss; needs --data-root",
    paper="ICML 2016, Table 2; 2015 version, Table 2",
    presets={"quick": QUICK, "small": SMALL, "paper": PAPER},
    data=data,
    model=make_model,
    look=look,
    needs_root=True,
    with_dataset={"voc": {"classes": list(OBJECTS)}, "make-voc": {"classes": list(DIGITS[:4])}},
    weights=make_alexnet,
    ready=ready,
    start=start_from_weights,
    judge=judge,
    harder=harder,
    draw=draw,
)
