"""The real store classes of several releases, driven from Python."""
