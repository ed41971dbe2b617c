"""Readers of models of toolkits that are no longer developed: fairseq, OpenNMT, Eole, nanoGPT."""
