"""How good translations are, by sacreBLEU: `scores` (BLEU, chrF, TER with their signatures)."""
