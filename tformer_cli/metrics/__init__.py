"""Numbers that say how good a model is, without torch: BLEU, chrF, TER, labels, alignments."""
