"""What the user asks for: the recipe, which decides every byte, and a run's options.

In: flags, keywords or a YAML file. Out: a checked, frozen :class:`.recipe.Recipe` and
:class:`.recipe.RunOptions`. Read :mod:`.recipe` first: it declares their options.

::

    keywords, file -> canonical -> recipe
"""
