"""Object detection by regions with CNN features (Girshick et al. 2014): proposals, samples, scores, evaluation."""
