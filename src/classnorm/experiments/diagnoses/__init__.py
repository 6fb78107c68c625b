"""The paper's diagnostics as tasks of the engine, and as tables and plots of any dataset."""
