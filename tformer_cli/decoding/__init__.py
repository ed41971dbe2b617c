"""From source token ids to translations: search, and lines in, lines out.

Read in this order: `config` (what there is to choose), `hypothesis` (scores and lengths), `greedy`
(the short search, which beam search with one slot must equal), `beam_search`, `processors` (rules
about the next token); then what else finds translations: `sampling`, `diverse`, `constraints`,
`ensemble`; `scoring`, which judges translations that are given; `engine` (what a search engine
offers, and the choice among several) and `torch_engine`, the one that knows every rule; then
`source_batches`, `splitting` (lines longer than the model takes), `demands` (what is asked of a
single line), `translator`, which joins them, and `formats` (how translations are written).
"""
