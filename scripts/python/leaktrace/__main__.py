"""``python -m leaktrace`` does what the command does; ``run train.py`` uses this interpreter."""

from leaktrace._program import main

if __name__ == "__main__":
    main()
