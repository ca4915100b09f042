"""Streaming transducers: a cached-state Zipformer (icefall) or FastConformer (NeMo) that writes along while it hears.

`files.py` reads a folder as sherpa-onnx publishes them; `recogniser.py` is one session's hearing.
"""
