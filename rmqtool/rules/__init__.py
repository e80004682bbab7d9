"""What each release of a broker does, as far as it differs from release to release."""
