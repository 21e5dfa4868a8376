"""The evidence harness: what each method costs and gives, measured beside what users would pick instead.

Reading order: ``registry`` (which methods there are), ``claims`` (what is claimed and when it holds), ``evidence``
(what one run found), ``context`` (what an ``evidence.py`` is given), ``runner`` and ``worker`` (one process a method),
``results`` (the files), ``table``, ``plots`` and ``report`` (what a person reads).
"""
