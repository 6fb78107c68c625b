"""Settings of each method: config, recipes and search space. They load without PyTorch; `methods/NAME.py` fits."""
