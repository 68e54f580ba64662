"""``python -m directloss_repro`` is the command ``directloss``."""

from directloss_repro.cli import main

if __name__ == "__main__":
    main()
