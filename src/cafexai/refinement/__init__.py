"""Refined scores: a few evaluations of the model at perturbed rows correct the net scores."""
