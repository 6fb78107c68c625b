"""Every table and figure of the paper's zero-shot part, declared as data and run by the engine."""
