"""Tests of the verification: healthy stores, and one damage for each finding."""
