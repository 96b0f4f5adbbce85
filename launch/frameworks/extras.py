"""Prints what the extras of setup.py for frameworks install, one package a line."""

import importlib.metadata

EXTRAS = ("torch", "grain", "jax", "huggingface")


def main() -> None:
    """Prints the requirements, as pip takes them."""
    for text in importlib.metadata.requires("audio-tfrecords") or ():
        requirement, _, marker = text.partition(";")
        extra = marker.partition("==")[2].strip(" \"'")
        if extra in EXTRAS:
            print(requirement.strip())


if __name__ == "__main__":
    main()
