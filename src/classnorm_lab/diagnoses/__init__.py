"""The paper's diagnostics for any dataset: tasks of the engine, tables and plots."""
