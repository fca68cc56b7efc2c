"""The scored value and its carriers: how influence is carried through a model. No torch operation is known by name here."""
