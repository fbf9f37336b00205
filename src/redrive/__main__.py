"""``python -m redrive`` is the ``redrive`` command."""

from redrive.command import main

main(prog_name="redrive")
