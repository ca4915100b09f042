"""From sound to meaning and back: wake, voice activity, recognition, endpoint, speech, and the loop between them."""
