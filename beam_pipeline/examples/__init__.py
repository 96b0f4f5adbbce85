"""What one example is: its window, its features, and its bytes.

In: the recipe and windows of samples. Out: specs of features, their values, and
serialised ``tf.train.Example`` messages. Read :mod:`.spec` first: writer and reader
share it.

::

    windows -> augmentation -> features, event_targets -> encoding
"""
