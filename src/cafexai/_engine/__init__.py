"""One explained pass: the model is followed, the result checked and taken back to the features."""
