"""`python -m classnorm`."""

from classnorm.cli import main

main()
