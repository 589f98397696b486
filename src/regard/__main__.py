"""python -m regard"""


def main() -> None:
    """Import and run the command line; Ctrl-C during the import ends the program without a traceback."""
    try:
        from regard.cli.app import main as run
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    run()


if __name__ == "__main__":
    main()
