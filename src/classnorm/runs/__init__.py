"""A job that fills a run folder, the engine that runs many, and search."""
