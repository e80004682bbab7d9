"""What the runs that prove something have found: their figures, and the page that is made of them."""
