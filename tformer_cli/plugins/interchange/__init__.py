"""`tformer export`, and models of Marian and CTranslate2, which also are read."""
