"""Speech synthesis: phonemes from espeak-ng, Piper's voice streamed in chunks, and a cache of replies."""
