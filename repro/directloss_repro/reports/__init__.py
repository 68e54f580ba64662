"""Tables, figures, verdicts and the page of an experiment, from its stored records alone.

A folder holds ``records.jsonl`` (one finished training per line) and ``run.json`` (command and settings). `report`
adds ``report.html``, ``tables.md`` and ``figures/``, at any moment of a run, and again::

    report = build(load_run(folder), description)
    write(report)
    console.print(for_terminal(report))

An experiment declares its claims and figures with `description`, which needs nothing else. `stats` has means and
intervals, `claims` the verdicts, `tables` and `settings` the tables, `figures` the figures in the style of `plotting`,
`images` what runs drew themselves, and `summary` the sentences.
"""
