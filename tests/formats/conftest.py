"""Settings of the property tests."""

from hypothesis import settings

settings.register_profile("formats", deadline=None)  # the first example pays for imports, and machines are shared
settings.load_profile("formats")
