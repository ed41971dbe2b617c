"""Quality of translations by sacreBLEU: `scores` (BLEU, chrF, TER with their signatures)."""
