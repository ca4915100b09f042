"""MQTT: the connection to a broker, and what Wren says and takes over it."""
