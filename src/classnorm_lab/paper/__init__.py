"""The tables and figures of the paper, declared as data and run by the engine."""
