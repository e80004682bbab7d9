"""A finding, the page that explains it, and the report that counts them."""
