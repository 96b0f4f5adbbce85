"""What a person asks for: the recipe, which decides every byte, and the options of a run.

In: flags, keywords or a YAML file. Out: a checked, frozen :class:`.recipe.Recipe` and
:class:`.options.RunOptions`. Read :mod:`.recipe` first.
"""
