"""Text into batches of token ids, and back.

Read `lines` (files as lines of text), `config` (settings of a recipe's tables), `corpora` with
`fields` and `hub` (every kind of corpus as sentence pairs), `tokenizer`, `joint_tokenizer` and
`train_tokenizer` (text to ids and back), the folder `sentencepiece` and `pieces` (tokenizers of
foreign models), `batching` (batches by token budget), then the folder `loading` (corpora on disk
and the stream of batches that training reads).
"""
