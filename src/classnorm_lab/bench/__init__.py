"""`classnorm bench`: how fast training, inference and start-up are on this machine, and what changed since."""
