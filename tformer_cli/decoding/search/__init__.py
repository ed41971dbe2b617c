"""Search with torch, which knows every rule and is what the other engines are compared with.

Read in this order: `greedy` (the short search, which beam search with one slot must equal),
`beam_search`, `processors` (rules about the next token); then what else finds translations:
`sampling`, `diverse`, `constraints`; `ensemble` and `shortlisted_model`, decoding models made of
others; `scoring`, which judges translations that are given; `torch_search` chooses among them for a
batch of sentences, and `torch_engine` offers them as a search engine.
"""
