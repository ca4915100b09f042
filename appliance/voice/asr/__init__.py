"""Speech recognition: the protocol the loop uses, and Moonshine behind it."""
