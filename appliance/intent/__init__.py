"""Understanding: from a transcript to a meaning, an act in the home and a reply.

Start at `assistant`. Nothing heavy is imported here: hassil, jinja2 and pydantic come with the modules that use them.
"""
