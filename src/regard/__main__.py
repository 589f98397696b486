"""python -m regard"""

from regard.cli.app import main

main()
