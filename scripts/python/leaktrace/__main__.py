"""``python -m leaktrace``: the same as the command, and ``run train.py`` takes this interpreter."""

from leaktrace._program import main

if __name__ == "__main__":
    main()
