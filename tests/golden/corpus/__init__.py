"""A corpus of decisions: histories of made clusters, and the digests of what was decided.

Properties say what must hold; the corpus says what was chosen. A change that means to keep
every decision shows here if it does not.

    grid.py         what a cluster may be like, drawn from a seed
    history.py      what happens to it, drawn from the same seed; its decisions and reasons
    record.py       python -m tests.golden.corpus.record: the digests, or one history in full
    recorded.txt    a line a history: its number, events, decisions, reasons
    test_corpus.py  the comparison
"""
