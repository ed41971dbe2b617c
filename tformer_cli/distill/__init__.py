"""A student of a teacher's translations, from one recipe to a report.

Begin with `distill`, which joins the stages; `stages` is a small make, `translations` what the
student reads, `setup` the inputs and their checks.
"""
