"""What the library has to say: nodes that are lost and found, a cache that could not be had."""
import atexit

from ._abi import LogFunction, library

_listening = LogFunction()  # kept here: the library calls it


def set_log(function):
    """`function(level, message)` hears it: level 0 error, 1 warning, 2 info. None: nobody does, as at the start.

    It is called on threads of the library and must not call this package. When this returns, nobody uses what was set before.
    """
    global _listening
    listening = LogFunction()
    if function is not None:
        listening = LogFunction(lambda level, message, _: function(level, message.decode(errors="replace")))
    library.engram_set_log(listening, None)
    _listening = listening


atexit.register(set_log, None)  # threads of the library outlive the interpreter
