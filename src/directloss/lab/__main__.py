"""``python -m directloss.lab`` is the command ``directloss``."""

from directloss.lab.cli import main

if __name__ == "__main__":
    main()
