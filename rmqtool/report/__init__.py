"""`report`: one page about a store: what it holds, what is wrong, how long it lasts, and who has read how far."""
