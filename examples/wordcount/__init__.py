"""The word count of the paper on reliable state machines: right, though the hosts of its machines are killed and stopped.

    python -m examples.wordcount                    # the words of LICENSE
    python -m examples.wordcount --text FILE --seconds 60

The command starts a `boki dev` and three hosts, and sends the words of a text, again and again, to four counter machines. Meanwhile it
kills hosts with kill -9 and stops others for longer than their lease. It prints the most frequent word, and whether all counts are those
of plain Python. Exit code 1 if one differs.

Read `app` (the machines), then `trial` (the program that sends the words, and the check); `host` is the process that runs machines.
"""
