"""The carriers: how influence is propagated through a model (``netting=``)."""
