"""Tables, figures, verdicts and the page of an experiment, from only its stored records.

An experiment declares its claims and figures with `description`. `stats` has means and intervals, `claims` the
verdicts, `tables` and `hyperparameters` the tables, `figures` the figures in the style of `style`, `predictions` the
pictures of test images, and `summary` the sentences. `report` combines them::

    report = build(load_run(folder), description)
    write(report)
"""
