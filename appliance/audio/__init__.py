"""Sound as the appliance carries it: frames, files, resampling. Knows nothing of voice or of the network."""
