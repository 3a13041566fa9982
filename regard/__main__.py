"""`python -m regard` does what the command `regard` does."""

from regard.cli.main import run

if __name__ == "__main__":
    run()
