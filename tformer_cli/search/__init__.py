"""From source token ids to translations: greedy and beam search, sampling, constraints.

Begin with `config.py`, the settings, and `engine.py`, which chooses among search engines;
`translator.py` joins the steps from lines to lines, `formats.py` writes them.
"""
