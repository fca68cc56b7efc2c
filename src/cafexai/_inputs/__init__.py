"""What the user hands in, checked and brought into one form before anything runs."""
