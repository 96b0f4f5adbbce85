"""What the user asks for: the recipe, which decides every byte, and a run's options.

In: flags, keywords or a YAML file. Out: a checked, frozen :class:`.recipe.Recipe` and
:class:`.run_options.RunOptions`. Read :mod:`.recipe` first: it declares the recipe's
options.

::

    keywords, file -> canonical -> recipe, run_options

:mod:`.declare` is how their sections declare options.
"""
