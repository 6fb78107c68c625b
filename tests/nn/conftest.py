"""Property tests draw the same examples on every run, and a busy machine does not fail them."""

from hypothesis import settings

settings.register_profile("classnorm", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("classnorm")
