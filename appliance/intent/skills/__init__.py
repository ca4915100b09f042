"""What Wren can do by itself, with no home: tell the time, keep timers, keep lists."""
