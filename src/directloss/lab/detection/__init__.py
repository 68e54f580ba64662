"""Object detection by regions with CNN features (Girshick et al. 2014): proposals, samples, scores, evaluation."""

from directloss.lab.detection.boxes import nms, overlaps
from directloss.lab.detection.drawing import draw_detections
from directloss.lab.detection.evaluation import Detections, Truth, voc_ap
from directloss.lab.detection.proposals import Search, propose_all, read_proposals
from directloss.lab.detection.sampling import Sample, draw_sample, hardest_negatives, label_boxes
from directloss.lab.detection.views import View

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
