"""Object detection by regions with CNN features (Girshick et al. 2014): proposals, samples, scores, evaluation."""

from directloss_repro.detection.boxes import nms, overlaps
from directloss_repro.detection.drawing import draw_detections
from directloss_repro.detection.evaluation import Detections, Truth, voc_ap
from directloss_repro.detection.proposals import Search, propose_all, read_proposals
from directloss_repro.detection.sampling import Sample, draw_sample, hardest_negatives, label_boxes
from directloss_repro.detection.views import View

__all__ = [
    "Detections",
    "Sample",
    "Search",
    "Truth",
    "View",
    "draw_detections",
    "draw_sample",
    "hardest_negatives",
    "label_boxes",
    "nms",
    "overlaps",
    "propose_all",
    "read_proposals",
    "voc_ap",
]
