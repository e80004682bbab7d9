"""The broker's retention: which files its cleaner deletes, when and why; it decides, and nobody writes here."""
