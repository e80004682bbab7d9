"""Messages to Parquet: plan, write a split, commit, run over local processes."""
