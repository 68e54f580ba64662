"""From a table to a model without code: the work behind `directloss fit` and `directloss predict` (extra ``fit``).

reading     CSV and Parquet files as batches of rows, and a random sample that fits into memory
columns     what each column holds: numbers, categories or dates; and how it becomes standardised numbers
target      the column to predict, the split of its rows, and columns that give it away
measures    the metrics on offer, their thresholds, and their correction for wrong labels
methods     the networks and the models they are compared with, and how each is trained
comparison  confidence intervals on the test rows
model       a trained model and its file
fitting     from the request to the finished folder
report      the verdict and the HTML page
files       atomic file writes
"""
