"""`python -m dspark_calib_cli`."""

from dspark_calib_cli.app import main

if __name__ == "__main__":
    main()
