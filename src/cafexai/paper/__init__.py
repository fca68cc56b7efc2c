"""The paper: its data sets, its networks, and its experiments."""
